//! The step, cut at the two places where the trainer has its turn: `order`, `take`, `settle`. What lies between is
//! in the order of `host/src/step.rs`.

use std::collections::{BTreeMap, HashSet};

use allot_allocation::{
    Action, Batch, Group, Line as Granted, Plan, Prompt, PromptId, RolloutId, Settled, View, advantage, seed,
};
use allot_record::{Call, End, Line, Record, Rollouts, Sampled, StepEnd};
use allot_sandbox::Line as LogLine;

use super::order::{Draw, Learn, Order};
use super::told::Told;
use super::{Allocator, Phase};
use crate::kept::Kept;
use crate::trouble::{Result, Trouble};

/// The mean of a step's rewards.
#[derive(Default)]
pub struct Rewards {
    sum: f64,
    n: u64,
}

impl Allocator {
    /// Asks the policy until there is something to do.
    pub fn order(&mut self, log: &mut Vec<LogLine>) -> Result<Order> {
        match &self.phase {
            Phase::Between => {
                if let Some(reason) = &self.kept.over {
                    return Ok(Order::Over { reason: reason.clone() });
                }
                self.open()?;
                if let Some(reason) = &self.kept.over {
                    return Ok(Order::Over { reason: reason.clone() });
                }
            }
            Phase::Asking => {}
            Phase::Sampling { granted, .. } => {
                let n: u32 = granted.iter().map(|line| line.count).sum();
                let what = format!("{n} rollouts were granted, and nothing was said of them");
                return Err(Trouble::new(what).hint("hand them in with sampled(…), then ask again"));
            }
            Phase::Training { learned, .. } => {
                let what =
                    format!("a batch of {} rollouts was given, and nothing was said of it", learned.len());
                return Err(Trouble::new(what).hint("say that it is done with trained(…), then ask again"));
            }
        }
        loop {
            let (view, offered) = self.view();
            let plan = self.policy.decide(&self.run, &self.kept.state, &view, log)?;
            self.kept.pool.evict(&plan.evict);
            self.kept.pool.take(plan.skip.iter().copied());
            match &plan.action {
                Action::Sample(requests) => {
                    let spent = self.kept.books.grantable() == 0;
                    let shelf = &self.kept.shelf;
                    let grant = self.kept.books.grant(requests, |prompt| shelf.next_position(prompt));
                    let (granted, count) = (grant.lines().to_vec(), grant.rollouts());
                    self.note(&view, &plan, offered, count)?;
                    if spent {
                        self.phase = Phase::Between;
                        return self.ended("the budget is spent", true);
                    }
                    self.kept.pool.take(granted.iter().map(|line| line.prompt));
                    if granted.is_empty() {
                        // Passed over or evicted, and nothing else: another round, as in the host.
                        self.charge([].into_iter())?;
                        self.round += 1;
                        continue;
                    }
                    let draws = granted.iter().map(|line| self.draw(*line)).collect();
                    let asked = requests.iter().map(|request| u64::from(request.count)).sum();
                    let (step, round) = (view.step, view.round);
                    self.phase = Phase::Sampling { view: Box::new(view), granted };
                    return Ok(Order::Sample { step, round, draws, asked });
                }
                Action::Train(batch) => {
                    self.note(&view, &plan, offered, 0)?;
                    let learned = self.learned(&view, batch);
                    let order = Order::Train {
                        step: view.step,
                        round: view.round,
                        rollouts: learned.clone(),
                        hold: batch.hold.clone(),
                    };
                    self.phase = Phase::Training { view: Box::new(view), batch: batch.clone(), learned };
                    return Ok(order);
                }
            }
        }
    }

    /// Opens a step, or ends the run.
    fn open(&mut self) -> Result<()> {
        if let Some(head) = self.head.take() {
            if let Some(folder) = &self.folder {
                std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e))?;
                match Record::create(&folder.join("record.jsonl")) {
                    Ok(record) => self.record = record,
                    Err(error) => {
                        self.head = Some(head);
                        return Err(error.into());
                    }
                }
            }
            self.record.write(&Line::Head(head))?;
        }
        let on_hand = self.kept.shelf.rollouts();
        if self.kept.books.exhausted() {
            if on_hand == 0 {
                return self.ended("the budget is spent", true).map(drop);
            }
            // What was paid for and is held may be trained on in one more step.
            self.kept.last = Some("the budget is spent".to_owned());
        }
        if self.kept.pool.is_spent() && on_hand == 0 {
            return self.ended("every prompt is evicted", true).map(drop);
        }
        self.kept.books.open_step();
        self.kept.shelf.open_step();
        self.round = 0;
        self.rewards = Rewards::default();
        self.phase = Phase::Asking;
        Ok(())
    }

    /// The view of a round, and the prompts in it that the last one did not have.
    fn view(&mut self) -> (View, Vec<Prompt>) {
        let Kept { pool, shelf, books, steps, .. } = &mut self.kept;
        pool.top_up(shelf);
        let view = View {
            step: *steps,
            round: self.round,
            seed: seed::policy(self.of.seed, *steps, self.round),
            budget: books.budget(),
            pool: pool.offered().to_vec(),
            groups: shelf.groups(),
        };
        (view, pool.newly_offered().to_vec())
    }

    /// Writes a call down, and takes over the policy's new state.
    fn note(&mut self, view: &View, plan: &Plan, offered: Vec<Prompt>, granted: u64) -> Result<()> {
        let call = Call::of(view, plan, &self.kept.state, offered, granted);
        self.kept.state.clone_from(&plan.state);
        Ok(self.record.write(&Line::Call(Box::new(call)))?)
    }

    fn draw(&self, line: Granted) -> Draw {
        let seed = |i| seed::rollout(self.of.seed, line.prompt, self.kept.version, line.first + i);
        Draw { prompt: line.prompt, count: line.count, seeds: (0..line.count).map(seed).collect() }
    }

    fn charge(&mut self, paid: impl Iterator<Item = (PromptId, u32, u32)>) -> Result<()> {
        self.kept.books.charge(paid).map_err(|fault| Trouble::new(fault.to_string()))
    }

    /// Puts rollouts on the shelf. Whatever is wrong with them is found before anything is charged.
    pub fn take(&mut self, told: Vec<Told>) -> Result<(u64, Vec<bool>)> {
        let Phase::Sampling { view, granted } = &self.phase else {
            return Err(Trouble::new("rollouts were handed in, and none were granted")
                .hint("next() says when to sample, and how often"));
        };
        let signals = self.policy.policy.description().signals.len();
        let outcomes = Told::outcomes(told, granted, signals, self.kept.books.limits().longest)?;
        let (step, round) = (view.step, view.round);
        self.charge(outcomes.iter().map(|o| (o.prompt, o.position, o.tokens)))?;
        for reward in outcomes.iter().filter_map(|o| o.reward) {
            self.rewards.sum += f64::from(reward);
            self.rewards.n += 1;
        }
        let line = Rollouts { step, round, sampled: Sampled::of(&outcomes, signals) };
        self.record.write(&Line::Rollouts(Box::new(line)))?;
        let on_hand = outcomes.iter().map(|o| o.reward.is_some()).collect();
        let first = self.kept.shelf.add(outcomes);
        self.round += 1;
        self.phase = Phase::Asking;
        Ok((first.0, on_hand))
    }

    /// Turns picks into advantages.
    fn learned(&self, view: &View, batch: &Batch) -> Vec<Learn> {
        let groups: BTreeMap<PromptId, &Group> = view.groups.iter().map(|g| (g.prompt, g)).collect();
        let mut learned = Vec::new();
        for pick in &batch.picks {
            let Some(group) = groups.get(&pick.prompt) else { continue };
            let advantages = advantage::of_pick(pick, group, self.scale);
            for (position, advantage) in pick.positions(group.len()).into_iter().zip(advantages) {
                if let Some(id) = self.kept.shelf.rollout(pick.prompt, position) {
                    learned.push(Learn { id, prompt: pick.prompt, age: group.ages[position], advantage });
                }
            }
        }
        learned
    }

    /// Settles the shelf, and ends the step.
    pub fn settle(
        &mut self,
        updated: bool,
        metrics: Vec<(String, f64)>,
        accuracy: Option<f64>,
    ) -> Result<(Settled, StepEnd)> {
        let (view, batch, learned) = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Training { view, batch, learned } => (view, batch, learned),
            other => {
                self.phase = other;
                return Err(Trouble::new("a batch is said to be done, and none was given")
                    .hint("next() gives one when the policy is done sampling"));
            }
        };
        if let Some((name, value)) = metrics.iter().find(|(_, value)| !value.is_finite()) {
            let what = format!("the update of step {} was refused: {name} is {value}", view.step);
            self.phase = Phase::Training { view, batch, learned };
            return Err(
                Trouble::new(what).hint("go on from the last checkpoint, with a smaller learning rate")
            );
        }
        let shelf = &self.kept.shelf;
        let flat: HashSet<RolloutId> = view
            .groups
            .iter()
            .filter(|g| g.flat())
            .flat_map(|g| (0..g.len()).filter_map(|i| shelf.rollout(g.prompt, i)))
            .collect();
        let settled = self.kept.shelf.settle(&batch, updated, self.run.max_age);
        self.kept.pool.remember(view.step, &settled.visits);
        let n = learned.len();
        let ages: f64 = learned.iter().map(|l| f64::from(l.age)).sum();
        let end = StepEnd {
            step: view.step,
            updated,
            groups: batch.picks.len() as u64,
            trained: settled.trained.len() as u64,
            effective: learned.iter().filter(|l| l.advantage != 0.0).count() as u64,
            released: settled.released.len() as u64,
            flat: settled.released.iter().filter(|id| flat.contains(id)).count() as u64,
            stale: settled.stale.len() as u64,
            held: settled.held,
            mean_age: if n == 0 { 0.0 } else { ages / n as f64 },
            reward: if self.rewards.n == 0 { 0.0 } else { self.rewards.sum / self.rewards.n as f64 },
            spent: self.kept.books.spent(),
            metrics,
            accuracy,
            ..StepEnd::default()
        };
        self.kept.steps += 1;
        self.kept.version += u32::from(updated);
        self.record.write(&Line::Step(Box::new(end.clone())))?;
        if let Some(reason) = self.kept.last.clone() {
            self.ended(&reason, true)?;
        } else if self.kept.steps >= self.run.steps {
            self.ended("all steps are done", true)?;
        }
        Ok((settled, end))
    }

    /// The run is over.
    fn ended(&mut self, reason: &str, normal: bool) -> Result<Order> {
        self.kept.over = Some(reason.to_owned());
        let end = End {
            reason: reason.to_owned(),
            normal,
            steps: self.kept.steps,
            spent: self.kept.books.spent(),
            compute: allot_allocation::Compute::default(),
            accuracy: None,
            scores: Vec::new(),
            evaluated: None,
        };
        self.record.write(&Line::End(end))?;
        Ok(Order::Over { reason: reason.to_owned() })
    }

    /// The policy broke a rule or gave no answer: in mid-step, there is no way on but from a state.
    pub fn stopped(&mut self, trouble: &Trouble) {
        if matches!(self.phase, Phase::Asking) {
            // The reason for the stop matters more than a second failure of the record.
            let _ = self.ended(trouble.what(), false);
            self.phase = Phase::Between;
        }
    }
}
