//! Restores the views that a policy saw from the lines of a record.
//!
//! All lines written by a run are accepted. Inconsistent lines, as after an edit or disk damage, are
//! rejected, because replaying a view that never occurred proves nothing.

use std::collections::{HashMap, HashSet, VecDeque};

use allot_allocation::{
    Action, Batch, Column, Columns, History, Need, Outcome, Plan, Portions, Prompt, PromptId, RolloutBuffer,
    Run, SamplerSettings, View, rules, total,
};

use crate::line::{Call, Head, Line, Rollouts, unhex};
use crate::{RecordError, Result};

/// Restores views from lines. Pass it every line after the head, in order.
pub struct Views {
    policy: String,
    pool: Vec<Prompt>,
    buffer: RolloutBuffer,
    history: History,
    columns: Columns,
    /// The newest epoch of any prompt offered so far.
    newest: u32,
    /// The run as the current policy sees it.
    run: Run,
    state: Vec<u8>,
    /// The step and round of the next call.
    next: (u32, u32),
    /// The last call's plan, until its step ends.
    plan: Option<Plan>,
    /// In a run with a lag: for each decided step without a line in the record, whether it updates the
    /// model, and how many held rollouts it discards: [`Call::unaffordable`].
    waiting: VecDeque<(bool, u64)>,
    /// The unfinished requests of the plan, and how often these are served again what they lost.
    portions: Portions,
    retries: u32,
    /// Rollouts granted and not recorded yet, by prompt, with sampler settings that differ from the run's.
    granted: HashMap<PromptId, (u64, Option<SamplerSettings>)>,
    ended: bool,
}

/// One call of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The view that the policy saw.
    pub view: View,
    /// The policy's plan, with the state that it returned.
    pub plan: Plan,
}

impl Views {
    /// Returns the views of the run with this head.
    pub fn new(head: &Head) -> Result<Self> {
        Ok(Self {
            policy: head.policy.name.clone(),
            pool: Vec::new(),
            buffer: RolloutBuffer::new(head.lists()),
            history: History::default(),
            columns: head.run.columns(),
            newest: 0,
            run: head.run.clone(),
            state: unhex(&head.state).ok_or_else(|| inconsistent((0, 0)))?,
            next: (0, 0),
            plan: None,
            waiting: VecDeque::new(),
            portions: Portions::default(),
            retries: head.retries,
            granted: HashMap::new(),
            ended: false,
        })
    }

    /// Takes a line. Returns the call, if the line is one.
    pub fn take(&mut self, line: &Line) -> Result<Option<Asked>> {
        let fits = !self.ended;
        match line {
            Line::Call(call) if fits && (call.step, call.round) == self.next => self.call(call).map(Some),
            Line::Rollouts(rollouts) if fits => self.rollouts(rollouts).map(|()| None),
            Line::Step(step) if fits && self.run.lag == 0 && step.step == self.next.0 => {
                let Some(Plan { action: Action::Train(batch), .. }) = self.plan.take() else {
                    return Err(inconsistent(self.next));
                };
                self.settle(&batch, step.updated, step.unaffordable);
                self.buffer.made(step.updated);
                Ok(None)
            }
            // The step is settled already. From here on, rollouts come from the model after its update.
            Line::Step(step)
                if fits && step.step.checked_add(self.waiting.len() as u32) == Some(self.next.0) =>
            {
                if self.waiting.pop_front() != Some((step.updated, step.unaffordable)) {
                    return Err(inconsistent((step.step, 0)));
                }
                self.buffer.made(step.updated);
                Ok(None)
            }
            Line::Column(column) if fits && self.plan.is_none() && column.fits(self.run.prompts) => {
                self.columns.add(Column::clone(column));
                Ok(None)
            }
            // Allowed only between two steps.
            Line::Swap(swap) if fits && (swap.step, 0) == self.next && self.plan.is_none() => {
                self.policy.clone_from(&swap.policy.name);
                self.run.terms.clone_from(&swap.terms);
                if !self.run.gives(Need::Replay) {
                    self.buffer.let_go_trained();
                }
                self.state = unhex(&swap.state).ok_or_else(|| inconsistent(self.next))?;
                Ok(None)
            }
            Line::End(_) if fits => {
                self.ended = true;
                Ok(None)
            }
            _ => Err(inconsistent(self.next)),
        }
    }

    /// Ends the current step.
    fn settle(&mut self, batch: &Batch, updated: bool, unaffordable: u64) {
        let mut settled = self.buffer.settle(batch, updated, self.run.max_age);
        self.buffer.give_up(&mut settled, unaffordable);
        self.history.remember(self.next.0, &settled.visits);
        self.buffer.open_step();
        self.next = (self.next.0 + 1, 0);
    }

    fn call(&mut self, call: &Call) -> Result<Asked> {
        let at = self.next;
        self.pool.extend(&call.offered);
        self.newest = call.offered.iter().map(|prompt| prompt.epoch).fold(self.newest, u32::max);
        let groups = self.buffer.groups();
        let distinct: HashSet<PromptId> = self.pool.iter().map(|p| p.id).collect();
        let told = Call::counts(&self.pool, &groups) == call.counts && distinct.len() == self.pool.len();
        let portions = match &call.plan.action {
            Action::Sample(requests) => Portions::of(requests, self.retries),
            Action::Train(_) => Portions::default(),
        };
        let asked = total(&portions.due());
        // A training plan waits for its step's line; with a lag, for the lines of earlier steps.
        let trained = matches!(&self.plan, Some(Plan { action: Action::Train(_), .. }))
            || self.waiting.len() > self.run.lag as usize;
        if !told || trained || !self.granted.is_empty() || call.asked != asked || call.granted > asked {
            return Err(inconsistent(at));
        }
        if let Some(changed) = &call.state {
            self.state = changed.apply(&self.state).ok_or_else(|| inconsistent(at))?;
        }
        let view = View {
            step: call.step,
            round: call.round,
            seed: call.seed,
            budget: call.budget,
            pool: self.pool.clone(),
            groups,
            unscored: self.buffer.unscored(),
            history: self.history.clone(),
        };
        let bounds = rules::Bounds::default().within(&self.run);
        // Metrics do not affect decisions, and older records have metric names with other characters.
        let mut plan = Plan { state: self.state.clone(), metrics: Vec::new(), ..call.plan.clone() };
        rules::check(&self.policy, &view, &plan, bounds).map_err(|_| inconsistent(at))?;
        plan.metrics.clone_from(&call.plan.metrics);
        self.portions = portions;
        self.grant(call.granted);
        self.leave_pool(call);
        match &plan.action {
            Action::Train(batch) if self.run.lag > 0 => {
                let updated = !batch.picks.is_empty();
                self.settle(batch, updated, call.unaffordable);
                self.waiting.push_back((updated, call.unaffordable));
                self.plan = None;
            }
            _ => {
                self.plan = Some(plan.clone());
                self.next.1 += 1;
            }
        }
        Ok(Asked { view, plan })
    }

    /// Returns the outcomes of past visits, as the next call would see them.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the columns of the data set in the record so far.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Removes the prompts that the plan skipped, deferred, evicted or was granted from the pool.
    fn leave_pool(&mut self, call: &Call) {
        let Plan { skip, defer, evict, .. } = &call.plan;
        let mut gone: HashSet<PromptId> = skip.iter().chain(defer).chain(evict).copied().collect();
        gone.extend(self.granted.keys());
        let offered: HashMap<PromptId, u32> =
            self.pool.iter().map(|prompt| (prompt.id, prompt.epoch)).collect();
        for prompt in self.granted.keys() {
            self.buffer.expect(*prompt, offered.get(prompt).copied().unwrap_or(self.newest));
        }
        self.pool.retain(|p| !gone.contains(&p.id));
    }

    /// Grants this many of the due rollouts, in order.
    fn grant(&mut self, rollouts: u64) {
        let mut left = rollouts;
        for request in self.portions.due() {
            let served = left.min(u64::from(request.count));
            if served == 0 {
                break;
            }
            left -= served;
            self.granted.insert(request.prompt, (served, request.sampling));
        }
        self.portions.granted(rollouts);
    }

    fn rollouts(&mut self, rollouts: &Rollouts) -> Result<()> {
        let at = (rollouts.step, rollouts.round);
        if (at.0, at.1.saturating_add(1)) != self.next {
            return Err(inconsistent(at));
        }
        let (mut came, mut scored, mut lost) = (0, Vec::new(), Vec::new());
        for sampled in &rollouts.sampled {
            let outcomes = sampled.outcomes().ok_or_else(|| inconsistent(at))?;
            let told = outcomes.len() as u64 + u64::from(sampled.unscorable);
            let granted = self.granted.remove(&sampled.prompt).filter(|(granted, _)| *granted == told);
            let (_, sampling) = granted.ok_or_else(|| inconsistent(at))?;
            came += told;
            if sampled.lost > sampled.unscorable {
                return Err(inconsistent(at));
            }
            // Only their number matters here: what each continues is in the outcomes.
            lost.extend(std::iter::repeat_n((sampled.prompt, None), sampled.lost as usize));
            scored.extend(outcomes.iter().map(|outcome| (outcome.prompt, outcome.correct)));
            self.buffer.add(outcomes.into_iter().map(|outcome| Outcome { sampling, ..outcome }));
            self.buffer.add_unscorable(sampled.prompt, sampled.unscorable);
        }
        self.portions.came(came, scored, lost);
        if rollouts.more > 0 {
            if !self.granted.is_empty() || rollouts.more > total(&self.portions.due()) {
                return Err(inconsistent(at));
            }
            self.grant(rollouts.more);
        }
        Ok(())
    }
}

fn inconsistent((step, round): (u32, u32)) -> RecordError {
    RecordError::Inconsistent { step, round }
}
