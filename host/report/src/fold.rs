//! Folds the lines of a record and its times, one by one, into a run's history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use allot_allocation::advantage::{self, Scale};
use allot_allocation::{
    Action, Batch, Group, Need, PromptId, RolloutBuffer, RolloutId, Settled, Spent, shown,
};
use allot_record::{Call, End, Evaluation, Head, Line, Machine, PolicyStamp, Rollouts, StepEnd, Swap, Time};

use crate::axis::Costs;
use crate::history::{Fates, History, Measured, Offers, Rollout, Score, Step};
use crate::seen::Seen;

/// Maximum number of bytes kept of the reason why a run ended, which may be a traceback.
const REASON: usize = 8 << 10;

/// Folds a record's lines into a history.
pub struct Fold {
    history: History,
    times: BTreeMap<u32, f64>,
    /// Accuracies told beside the record, by the number of finished steps.
    evaluations: BTreeMap<u32, Evaluation>,
    /// Those of them that are among the scores.
    told: BTreeSet<u32>,
    scale: Scale,
    buffer: RolloutBuffer,
    buffered: BTreeMap<RolloutId, Rollout>,
    numbers: u64,
    updates: u32,
    plan: Option<Call>,
    step: Open,
    /// In a run with a lag, the steps that are decided but not in the record yet.
    waiting: VecDeque<Closed>,
}

/// The current step.
#[derive(Default)]
struct Open {
    pilots: u64,
    commits: u64,
    truncated: u64,
    fates: Fates,
    /// The current round, and its prompts that had rollouts before it.
    round: Option<(u32, BTreeSet<PromptId>)>,
}

/// A settled step.
struct Closed {
    open: Open,
    settled: Settled,
    /// Number of rollouts trained on, by their age.
    ages: Vec<u64>,
    /// The sum of their rewards.
    rewards: f64,
}

impl Fold {
    /// Returns an empty history for the run of this head.
    pub fn new(run: String, mut head: Head, times: &[Time]) -> Self {
        // A history is shown on a terminal or page, and a record may have been edited.
        head.name = head.name.map(|name| shown::name(&name));
        let draft = if head.policy.draft { " (draft)" } else { "" };
        head.policy.name = shown::name(&head.policy.name) + draft;
        head.policy.version = shown::name(&head.policy.version);
        head.run.settings.iter_mut().for_each(|(name, _)| *name = shown::name(name));
        let scale = head.scale();
        let mut machines: Vec<Machine> = Vec::new();
        let mut seconds = BTreeMap::new();
        for time in times {
            match time {
                Time::Machine(machine) if machines.last() == Some(machine) => {}
                Time::Machine(machine) => machines.push(machine.clone()),
                Time::Step { steps, seconds: s } => _ = seconds.insert(*steps, s.of_steps()),
            }
        }
        let start = head.accuracy.map(|accuracy| Score {
            steps: 0,
            costs: Costs { seconds: seconds.get(&0).copied(), ..Costs::default() },
            accuracy,
            parts: head.scores.clone(),
        });
        let buffer = RolloutBuffer::new(head.lists());
        let history = History {
            id: head.seed,
            run,
            head,
            swaps: Vec::new(),
            machines,
            scores: start.into_iter().collect(),
            steps: Vec::new(),
            groups: 0,
            fates: Fates::default(),
            seen: Seen::default(),
            offers: Offers::default(),
            plans: 0,
            measured: BTreeMap::new(),
            prompts: BTreeMap::new(),
            end: None,
            troubles: Vec::new(),
            warned: Vec::new(),
            open: (0, 0, 0),
        };
        Self {
            history,
            times: seconds,
            evaluations: BTreeMap::new(),
            told: BTreeSet::new(),
            scale,
            buffer,
            buffered: BTreeMap::new(),
            numbers: 0,
            updates: 0,
            plan: None,
            step: Open::default(),
            waiting: VecDeque::new(),
        }
    }

    /// The history so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Adds an accuracy that was told beside the record. The record's own of that step counts instead.
    pub fn evaluation(&mut self, told: Evaluation) {
        let steps = told.steps;
        self.evaluations.insert(steps, told);
        self.place(steps);
    }

    /// Places what was told of this many steps among the scores, once the step is there.
    fn place(&mut self, steps: u32) {
        let Some(told) = self.evaluations.get(&steps) else { return };
        let last = steps.checked_sub(1).map(|last| self.history.steps.get(last as usize));
        let costs = match last {
            None => Costs { seconds: self.times.get(&0).copied(), ..Costs::default() },
            Some(Some(step)) => step.costs,
            Some(None) => return,
        };
        let score = Score { steps, costs, accuracy: told.accuracy, parts: told.scores.clone() };
        let scores = &mut self.history.scores;
        match scores.binary_search_by_key(&steps, |score| score.steps) {
            Ok(at) if self.told.contains(&steps) => scores[at] = score,
            Ok(_) => return,
            Err(at) => scores.insert(at, score),
        }
        self.told.insert(steps);
    }

    /// Adds a time written since.
    pub fn time(&mut self, time: &Time) {
        match time {
            Time::Machine(machine) => {
                if self.history.machines.last() != Some(machine) {
                    self.history.machines.push(machine.clone());
                }
            }
            Time::Step { steps, seconds } => {
                let seconds = seconds.of_steps();
                self.times.insert(*steps, seconds);
                // A run writes a step before its time.
                let index = (*steps as usize).checked_sub(1);
                if let Some(step) = index.and_then(|i| self.history.steps.get_mut(i)) {
                    step.costs.seconds = Some(seconds);
                }
                for score in self.history.scores.iter_mut().filter(|s| s.steps == *steps) {
                    score.costs.seconds = Some(seconds);
                }
            }
        }
    }

    /// Takes the next line after the head. `each` is called with every rollout whose fate the line
    /// determines. Fails with a message if the record is inconsistent; later lines are then not reliable.
    pub fn take(&mut self, line: Line, each: &mut dyn FnMut(Rollout)) -> Result<(), String> {
        if self.history.end.is_some() {
            return Err("it has lines after its end".to_owned());
        }
        match line {
            Line::Head(_) => return Err("it has a second header".to_owned()),
            // The data set's columns for a policy are not part of its decisions.
            Line::Column(_) => {}
            Line::Call(call) => self.call(*call, each)?,
            Line::Rollouts(rollouts) => self.rollouts(&rollouts, each)?,
            Line::Step(end) => self.step(*end, each)?,
            Line::Swap(swap) if swap.step == self.decided() && self.plan.is_none() => {
                let replays = swap.terms.as_ref().is_some_and(|terms| terms.needs.contains(&Need::Replay));
                // An earlier swap at the same step decided nothing.
                self.history.swaps.retain(|before| before.step != swap.step);
                self.history.swaps.push(Swap {
                    policy: PolicyStamp { name: shown::name(&swap.policy.name), ..swap.policy },
                    ..*swap
                });
                if !replays {
                    let settled = self.decided();
                    let gone = self.buffer.let_go_trained();
                    self.finished(&gone, settled, each).ok_or("its rollouts do not add up")?;
                }
            }
            Line::Swap(_) => {
                let step = self.decided();
                return Err(format!("its policy changes in the middle of step {step}, or for another step"));
            }
            Line::End(end) => self.end(end, each),
        }
        Ok(())
    }

    /// Returns the number of decided steps.
    fn decided(&self) -> u32 {
        (self.history.steps.len() + self.waiting.len()) as u32
    }

    fn call(&mut self, call: Call, each: &mut dyn FnMut(Rollout)) -> Result<(), String> {
        let odd = || format!("its plan of step {}, round {} can't be read", call.step, call.round);
        let offers = &mut self.history.offers;
        offers.all += call.offered.len() as u64;
        offers.again += call.offered.iter().filter(|prompt| prompt.epoch > 0).count() as u64;
        for (name, value) in &call.plan.metrics {
            let measured = self.history.measured.entry(shown::name(name)).or_default();
            *measured = Measured { calls: measured.calls + 1, sum: measured.sum + value, last: *value };
        }
        // Only the action is hashed: skips, evictions and memory matter only through it.
        let action = serde_json::to_vec(&call.plan.action).map_err(|_| odd())?;
        let mut hasher = DefaultHasher::new();
        (self.history.plans, action).hash(&mut hasher);
        self.history.plans = hasher.finish();
        match &call.plan.action {
            // Settled immediately, since its line follows only with its update.
            Action::Train(batch) if self.history.head.run.lag > 0 => {
                if call.step != self.decided() {
                    return Err(format!("its plan of step {} is for another step", call.step));
                }
                let updated = !batch.picks.is_empty();
                let closed = self.settle(batch, (call.step, updated, call.unaffordable), each);
                self.waiting.push_back(closed.ok_or_else(|| odd_step(call.step))?);
            }
            _ => self.plan = Some(call),
        }
        Ok(())
    }

    fn rollouts(&mut self, rollouts: &Rollouts, each: &mut dyn FnMut(Rollout)) -> Result<(), String> {
        let (step, round) = (rollouts.step, rollouts.round);
        let odd = || format!("its rollouts of step {step}, round {round} can't be read");
        let buffered = match self.step.round.take() {
            // A further part of the same round.
            Some((at, buffered)) if at == round => buffered,
            _ => rollouts.sampled.iter().map(|s| s.prompt).filter(|p| self.buffer.holds(*p)).collect(),
        };
        for sampled in &rollouts.sampled {
            let outcomes = sampled.outcomes().ok_or_else(odd)?;
            let pilot = !buffered.contains(&sampled.prompt);
            let told = outcomes.len() as u64 + u64::from(sampled.unscorable);
            *(if pilot { &mut self.step.pilots } else { &mut self.step.commits }) += told;
            self.step.truncated += outcomes.iter().filter(|o| o.truncated).count() as u64;
            self.step.fates.unscorable += u64::from(sampled.unscorable);
            self.history.seen.rollouts(outcomes.len() as u64, u64::from(sampled.unscorable));
            let right = outcomes.iter().filter(|o| o.correct).count() as u32;
            let lessons = self.history.prompts.entry(sampled.prompt.0).or_default();
            lessons.add(step, outcomes.len() as u32, right);
            let number = self.numbers;
            let one = |i: u64| Rollout {
                step,
                round,
                number: number + i,
                prompt: sampled.prompt,
                pilot,
                version: self.updates,
                reward: None,
                correct: false,
                tokens: None,
                truncated: false,
                fate: "unscorable",
                settled: step,
                age: None,
                advantage: None,
                updates: 0,
            };
            let first = self.buffer.add(outcomes.iter().cloned());
            for (i, outcome) in outcomes.iter().enumerate() {
                let rollout = Rollout {
                    reward: outcome.reward,
                    correct: outcome.correct,
                    tokens: Some(outcome.tokens),
                    truncated: outcome.truncated,
                    ..one(i as u64)
                };
                self.buffered.insert(RolloutId(first.0 + i as u64), rollout);
            }
            for i in outcomes.len() as u64..told {
                each(one(i));
            }
            self.numbers += told;
            self.buffer.add_unscorable(sampled.prompt, sampled.unscorable);
        }
        self.step.round = Some((round, buffered));
        Ok(())
    }

    /// Takes the end of a step, and settles it unless its plan was settled before.
    fn step(&mut self, end: StepEnd, each: &mut dyn FnMut(Rollout)) -> Result<(), String> {
        let odd = || odd_step(end.step);
        if end.step as usize != self.history.steps.len() {
            return Err(odd());
        }
        let closed = if self.history.head.run.lag > 0 {
            self.waiting.pop_front()
        } else {
            let Some(Action::Train(batch)) = self.plan.take().map(|call| call.plan.action) else {
                return Err(odd());
            };
            self.settle(&batch, (end.step, end.updated, end.unaffordable), each)
        };
        let Closed { open, settled, ages, rewards } = closed.ok_or_else(odd)?;
        self.buffer.made(end.updated);
        let gone = [settled.trained.len(), settled.released.len(), settled.stale.len()].map(|n| n as u64);
        let told = [end.trained, end.released, end.stale];
        if gone != told || (settled.again, settled.held) != (end.again, end.held) {
            return Err(odd());
        }
        self.updates += u32::from(end.updated);
        let costs = self.costs(end.step + 1, end.spent, end.compute);
        if let Some(accuracy) = end.accuracy {
            let score = Score { steps: end.step + 1, costs, accuracy, parts: end.scores.clone() };
            self.history.scores.push(score);
        }
        self.history.fates.add(&open.fates);
        self.history.steps.push(Step {
            costs,
            pilots: open.pilots,
            commits: open.commits,
            truncated: open.truncated,
            fates: open.fates,
            trained_reward: rewards / (end.trained.max(1) as f64),
            ages,
            // A report does not need these, and those of many runs would fill the memory.
            end: StepEnd { metrics: Vec::new(), scores: Vec::new(), ..end },
        });
        self.place(self.history.steps.len() as u32);
        Ok(())
    }

    /// Settles the buffer by a batch. `None` if the record is inconsistent.
    fn settle(
        &mut self,
        batch: &Batch,
        (step, updated, unaffordable): (u32, bool, u64),
        each: &mut dyn FnMut(Rollout),
    ) -> Option<Closed> {
        let groups: BTreeMap<PromptId, Group> =
            self.buffer.groups().into_iter().map(|g| (g.prompt, g)).collect();
        self.history.seen.groups(groups.values());
        let learned = self.learned(batch, &groups)?;
        let mut open = std::mem::take(&mut self.step);
        let fates = &mut open.fates;
        let (mut ages, mut rewards) = (Vec::new(), 0.0);
        let mut taught = BTreeSet::new();
        let mut settled = self.buffer.settle(batch, updated, self.history.head.run.max_age);
        self.buffer.give_up(&mut settled, unaffordable);
        self.buffer.open_step();
        for id in &settled.trained {
            let rollout = self.buffered.get_mut(id)?;
            let (age, advantage) = *learned.get(id)?;
            if advantage != 0.0 {
                taught.insert(rollout.prompt);
            }
            // Its fate is decided by the first update on it.
            if rollout.updates == 0 {
                let right = groups[&rollout.prompt].correct.iter().filter(|c| **c).count();
                if advantage != 0.0 {
                    self.history.prompts.entry(rollout.prompt.0).or_default().learned += 1;
                }
                *match (advantage != 0.0, right) {
                    (true, _) => &mut fates.learned,
                    (false, 0) => &mut fates.trained_wrong,
                    (false, n) if n == groups[&rollout.prompt].len() => &mut fates.trained_right,
                    (false, _) => &mut fates.trained_equal,
                } += 1;
                (rollout.age, rollout.advantage) = (Some(age), Some(advantage));
            }
            rollout.updates += 1;
            let bin = age as usize;
            ages.resize(ages.len().max(bin + 1), 0);
            ages[bin] += 1;
            rewards += f64::from(rollout.reward.unwrap_or(0.0));
        }
        self.history.groups += taught.len() as u64;
        self.finished(&settled.finished, step, each)?;
        for (ids, fate) in [(&settled.released, "released"), (&settled.stale, "stale")] {
            for id in ids {
                let rollout = self.buffered.remove(id)?;
                let group = &groups[&rollout.prompt];
                let right = group.correct.iter().filter(|c| **c).count();
                *match (fate, right) {
                    ("stale", _) => &mut fates.stale,
                    (_, 0) => &mut fates.released_wrong,
                    (_, n) if n == group.len() => &mut fates.released_right,
                    _ => &mut fates.released_mixed,
                } += 1;
                each(Rollout { fate, settled: step, ..rollout });
            }
        }
        Some(Closed { open, settled, ages, rewards })
    }

    /// Passes rollouts that left the buffer after training to `each`.
    fn finished(&mut self, ids: &[RolloutId], step: u32, each: &mut dyn FnMut(Rollout)) -> Option<()> {
        for id in ids {
            each(Rollout { fate: "trained", settled: step, ..self.buffered.remove(id)? });
        }
        Some(())
    }

    /// Returns the age and advantage of every rollout that a batch trains on.
    fn learned(
        &self,
        batch: &Batch,
        groups: &BTreeMap<PromptId, Group>,
    ) -> Option<BTreeMap<RolloutId, (u32, f32)>> {
        let mut learned = BTreeMap::new();
        for pick in &batch.picks {
            let group = groups.get(&pick.prompt)?;
            let positions = pick.positions(group.len());
            if positions.iter().any(|p| *p >= group.len()) {
                return None;
            }
            for (position, advantage) in
                positions.into_iter().zip(advantage::of_pick(pick, group, self.scale))
            {
                let id = self.buffer.rollout(pick.prompt, position)?;
                learned.insert(id, (group.ages[position], advantage));
            }
        }
        Some(learned)
    }

    fn end(&mut self, mut end: End, each: &mut dyn FnMut(Rollout)) {
        end.reason = shown::lines(end.reason.trim(), REASON);
        let steps = self.history.steps.len() as u32;
        let open = self.unfinished();
        self.history.open = (open.pilots, open.commits, open.truncated);
        let mut fates = open.fates;
        for rollout in std::mem::take(&mut self.buffered).into_values() {
            let fate = if rollout.updates == 0 { "held" } else { "trained" };
            fates.held += u64::from(rollout.updates == 0);
            each(Rollout { fate, settled: steps, ..rollout });
        }
        self.history.fates.add(&fates);
        let last = self.history.scores.last().map(|s| s.steps);
        if let Some(accuracy) = end.accuracy.filter(|_| last != Some(steps)) {
            let costs = self.costs(steps, end.spent, end.compute);
            self.history.scores.push(Score { steps, costs, accuracy, parts: end.scores.clone() });
        }
        self.history.end = Some(end);
    }

    /// Returns what was sampled in steps without an end in the record.
    fn unfinished(&mut self) -> Open {
        let mut open = std::mem::take(&mut self.step);
        for Closed { open: step, .. } in self.waiting.drain(..) {
            open.pilots += step.pilots;
            open.commits += step.commits;
            open.truncated += step.truncated;
            open.fates.add(&step.fates);
        }
        open
    }

    fn costs(&self, steps: u32, spent: Spent, compute: allot_allocation::Compute) -> Costs {
        Costs { spent, compute, seconds: self.times.get(&steps).copied() }
    }

    /// Returns the history so far. Rollouts sampled in a step without an end count as buffered.
    pub fn finish(mut self) -> History {
        if self.history.end.is_none() {
            let open = self.unfinished();
            self.history.open = (open.pilots, open.commits, open.truncated);
            let held = self.buffered.values().filter(|rollout| rollout.updates == 0).count() as u64;
            let held = Fates { held, ..open.fates };
            self.history.fates.add(&held);
        }
        self.history
    }
}

fn odd_step(step: u32) -> String {
    format!("its lines of step {step} do not add up")
}
