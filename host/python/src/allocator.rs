//! A run that its trainer drives: what to sample, what came of it, what to train on.
//!
//! `host/src/step.rs` calls an engine; here a trainer calls. So its one function is cut in three, at the two
//! places where it waits for the engine: `next`, `sampled`, `trained`. The order of everything in between is
//! the same, and a test replays a recorded run through both.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use allot_allocation::advantage::{self, Scale};
use allot_allocation::{
    Action, Batch, Group, Line as Granted, Outcome, Plan, Pool, Prompt, PromptId, RolloutId, Run, Settled,
    Shelf, View, seed,
};
use allot_record::{Call, End, Head, Line, Record, Rollouts, Sampled, StepEnd, hex};
use allot_sandbox::Line as LogLine;
use pyo3::prelude::*;
use pythonize::pythonize;
use serde::{Deserialize, Serialize};

use crate::kept::{self, Kept, Of};
use crate::policy::{Loaded, Policy, given, tell};
use crate::setup::Setup;
use crate::trouble::{Result, Trouble};

/// A run's pool, shelf, books, policy and record.
#[pyclass(module = "allot._allot")]
pub struct Allocator {
    policy: Arc<Loaded>,
    run: Run,
    of: Of,
    kept: Kept,
    record: Record,
    /// The record's first line, until it is written.
    head: Option<Box<Head>>,
    folder: Option<PathBuf>,
    scale: Scale,
    round: u32,
    rewards: Rewards,
    phase: Phase,
}

/// Whose turn it is.
enum Phase {
    /// The policy's, at the beginning of a step.
    Between,
    /// The policy's, within a step.
    Asking,
    /// The trainer's: it samples.
    Sampling { view: Box<View>, granted: Vec<Granted> },
    /// The trainer's: it learns.
    Training { view: Box<View>, batch: Batch, learned: Vec<Learn> },
}

/// What the trainer is to do.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Order {
    Sample { step: u32, round: u32, draws: Vec<Draw> },
    Train { step: u32, round: u32, rollouts: Vec<Learn>, hold: Vec<PromptId> },
    Over { reason: String },
}

/// Rollouts of one prompt to sample.
#[derive(Serialize)]
struct Draw {
    prompt: PromptId,
    count: u32,
    /// Where the chance of each comes from, so that runs of one seed are paired.
    seeds: Vec<u64>,
}

/// A rollout to train on.
#[derive(Clone, Serialize)]
struct Learn {
    id: RolloutId,
    prompt: PromptId,
    age: u32,
    advantage: f32,
}

/// A sampled rollout, as a trainer tells of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    reward: Option<f32>,
    correct: bool,
    tokens: u32,
    truncated: bool,
    signals: Vec<f32>,
}

/// The mean of a step's rewards.
#[derive(Default)]
struct Rewards {
    sum: f64,
    n: u64,
}

#[pymethods]
impl Allocator {
    #[new]
    fn new(policy: &Policy, setup: &Bound<'_, PyAny>) -> Result<Self> {
        let setup: Setup = given("setup", Some(setup))?.ok_or_else(|| Trouble::new("`setup` is missing"))?;
        setup.check()?;
        let policy = policy.loaded();
        let wanted = &policy.policy.description().signals;
        if let Some(missing) = wanted.iter().find(|s| !setup.signals.contains(s)) {
            let (name, engine) = (policy.name(), &setup.engine);
            let what =
                format!("policy `{name}` wants the signal `{missing}`, which `{engine}` does not measure");
            let hint = "a trainer that measures it says so by signals=[…], and gives it with each rollout";
            return Err(Trouble::new(what).hint(hint));
        }
        let run = setup.run(policy.settings.clone());
        let state = policy.begin(&run)?;
        let limits = setup.limits();
        let tokens = setup.lengths.iter().map(|n| u64::from(*n)).sum();
        let head = Head {
            format: allot_record::FORMAT,
            allot: env!("CARGO_PKG_VERSION").to_owned(),
            name: setup.name.clone(),
            policy: policy.stamp(),
            engine: setup.engine.clone(),
            signals: wanted.clone(),
            seed: setup.seed,
            order: setup.order,
            run: run.clone(),
            limits,
            ceilings: allot_allocation::Ceilings::default(),
            caps: policy.caps(),
            state: hex(&state),
            accuracy: None,
            scores: Vec::new(),
            training: setup.training.clone(),
            world: None,
        };
        let kept = Kept {
            pool: Pool::new(setup.seed, setup.order, run.pool, setup.lengths),
            shelf: Shelf::new(wanted.len()),
            books: allot_allocation::Books::new(limits),
            state,
            steps: 0,
            version: 0,
            last: None,
            over: None,
        };
        Ok(Self {
            of: Of { policy: policy.policy.sha256().to_owned(), run: run.clone(), seed: setup.seed, tokens },
            policy,
            run,
            kept,
            record: Record::none(),
            head: Some(Box::new(head)),
            folder: setup.folder,
            scale: setup.advantage,
            round: 0,
            rewards: Rewards::default(),
            phase: Phase::Between,
        })
    }

    /// What the trainer is to do next.
    fn next(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (order, log) = py.detach(|| {
            let mut log = Vec::new();
            (self.order(&mut log), log)
        });
        tell(py, log)?;
        let order = order.inspect_err(|trouble| self.stopped(trouble))?;
        Ok(pythonize(py, &order)?.unbind())
    }

    /// Takes what was sampled: the rollouts granted, in their order. Gives the first one's number, and for each
    /// whether it is on hand now.
    fn sampled(&mut self, rollouts: &Bound<'_, PyAny>) -> Result<(u64, Vec<bool>)> {
        let told: Vec<Told> = given("rollouts", Some(rollouts))?.unwrap_or_default();
        self.take(told)
    }

    /// The trainer is done with the batch. Gives what became of the rollouts on hand.
    #[pyo3(signature = (updated, metrics, accuracy=None))]
    fn trained(
        &mut self,
        py: Python<'_>,
        updated: bool,
        metrics: Vec<(String, f64)>,
        accuracy: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (settled, end) = self.settle(updated, metrics, accuracy)?;
        Ok(pythonize(py, &serde_json::json!({"settled": settled, "step": end}))?.unbind())
    }

    /// The score before the first step, for the record.
    fn scored(&mut self, accuracy: f64) -> Result<()> {
        let head = self.head.as_mut().ok_or_else(|| {
            Trouble::new("the first score is taken before the first step")
                .hint("later ones go to trained(accuracy=…)")
        })?;
        head.accuracy = Some(accuracy);
        Ok(())
    }

    /// Why the run is over, or none.
    #[getter]
    fn over(&self) -> Option<&str> {
        self.kept.over.as_deref()
    }

    /// Steps finished.
    #[getter]
    fn steps(&self) -> u32 {
        self.kept.steps
    }

    /// Model updates made.
    #[getter]
    fn version(&self) -> u32 {
        self.kept.version
    }

    /// What was spent.
    #[getter]
    fn spent(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.kept.books.spent())?.unbind())
    }

    /// Rollouts on hand, by prompt, as the policy sees them.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.kept.shelf.groups())?.unbind())
    }

    /// The numbers of the rollouts on hand of a prompt, in their group's order.
    fn on_hand(&self, prompt: u32) -> Vec<u64> {
        let shelf = &self.kept.shelf;
        (0..).map_while(|position| shelf.rollout(PromptId(prompt), position)).map(|id| id.0).collect()
    }

    /// The run's state between two steps, as text.
    fn save(&self) -> Result<String> {
        if !matches!(self.phase, Phase::Between) {
            let what = format!("step {} is not over", self.kept.steps);
            return Err(Trouble::new(what).hint("a state is taken between two steps: after trained(…)"));
        }
        self.record.sync()?;
        kept::save(&self.of, &self.kept, self.record.bytes())
    }

    /// Goes on from a state. What the record had after it is cut off.
    fn load(&mut self, text: &str) -> Result<()> {
        let (kept, bytes) = kept::load(text, &self.of)?;
        self.record = match &self.folder {
            // Of a state from before the first step there is nothing to go on with.
            Some(folder) if bytes > 0 => Record::resume(&folder.join("record.jsonl"), bytes)?,
            _ => Record::none(),
        };
        if bytes > 0 {
            self.head = None;
        }
        self.kept = kept;
        self.round = 0;
        self.rewards = Rewards::default();
        self.phase = Phase::Between;
        Ok(())
    }
}

impl Allocator {
    /// Asks the policy until there is something to do.
    fn order(&mut self, log: &mut Vec<LogLine>) -> Result<Order> {
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
                    let (step, round) = (view.step, view.round);
                    self.phase = Phase::Sampling { view: Box::new(view), granted };
                    return Ok(Order::Sample { step, round, draws });
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
        let asked = match &plan.action {
            Action::Sample(requests) => requests.iter().map(|r| u64::from(r.count)).sum(),
            Action::Train(_) => 0,
        };
        let state = (plan.state != self.kept.state).then(|| hex(&plan.state));
        self.kept.state.clone_from(&plan.state);
        let call = Call {
            step: view.step,
            round: view.round,
            seed: view.seed,
            budget: view.budget,
            offered,
            counts: Call::counts(&view.pool, &view.groups),
            plan: Plan { state: Vec::new(), ..plan.clone() },
            state,
            asked,
            granted,
        };
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
    fn take(&mut self, told: Vec<Told>) -> Result<(u64, Vec<bool>)> {
        let Phase::Sampling { view, granted } = &self.phase else {
            return Err(Trouble::new("rollouts were handed in, and none were granted")
                .hint("next() says when to sample, and how often"));
        };
        let positions: Vec<(PromptId, u32)> =
            granted.iter().flat_map(|line| (0..line.count).map(|i| (line.prompt, line.first + i))).collect();
        if told.len() != positions.len() {
            let (n, granted) = (told.len(), positions.len());
            let what = format!("{n} rollouts were handed in, and {granted} were granted");
            return Err(Trouble::new(what)
                .hint("give one for each, draw by draw; a reward of None is one that could not be scored"));
        }
        let signals = self.policy.policy.description().signals.len();
        let longest = self.kept.books.limits().longest;
        for ((prompt, _), one) in positions.iter().zip(&told) {
            if one.tokens > longest {
                let tokens = one.tokens;
                let what = format!(
                    "a rollout of prompt `{prompt}` has {tokens} tokens, and {longest} is the longest"
                );
                return Err(Trouble::new(what));
            }
            if one.signals.len() != signals {
                let n = one.signals.len();
                let what =
                    format!("a rollout of prompt `{prompt}` has {n} signals, and the policy wants {signals}");
                return Err(Trouble::new(what));
            }
        }
        let (step, round) = (view.step, view.round);
        let outcomes: Vec<Outcome> = positions
            .iter()
            .zip(told)
            .map(|((prompt, position), one)| Outcome {
                prompt: *prompt,
                position: *position,
                // Nothing that is not finite reaches a policy or the record.
                reward: one.reward.filter(|r| r.is_finite() && one.signals.iter().all(|x| x.is_finite())),
                correct: one.correct,
                tokens: one.tokens,
                truncated: one.truncated,
                signals: one.signals,
            })
            .collect();
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
    fn settle(
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
    fn stopped(&mut self, trouble: &Trouble) {
        if matches!(self.phase, Phase::Asking) {
            // The reason for the stop matters more than a second failure of the record.
            let _ = self.ended(trouble.what(), false);
            self.phase = Phase::Between;
        }
    }
}
