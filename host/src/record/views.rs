//! From a record's lines back to the views that the policy saw.

use allot_allocation::{Action, Plan, Prompt, PromptId, Shelf, View};

use super::line::{Call, Head, Line, unhex};
use crate::trouble::{Result, Trouble};

/// Folds lines into views. Feed it every line after the head, in order.
pub struct Views {
    pool: Vec<Prompt>,
    shelf: Shelf,
    state: Vec<u8>,
    max_age: u32,
    /// What is to be done with a plan before the next call's view: known only then.
    pending: Option<Plan>,
}

/// One call as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// What the policy saw.
    pub view: View,
    /// What it answered, with the state that it returned.
    pub plan: Plan,
}

impl Views {
    /// For the run of this head.
    pub fn new(head: &Head) -> Self {
        Self {
            pool: Vec::new(),
            shelf: Shelf::new(head.signals.len()),
            state: Vec::new(),
            max_age: head.run.max_age,
            pending: None,
        }
    }

    /// Takes a line; gives the call that it tells of, if it tells of one.
    pub fn take(&mut self, line: &Line) -> Result<Option<Asked>> {
        match line {
            Line::Call(call) => self.call(call).map(Some),
            Line::Rollouts(rollouts) => {
                for sampled in &rollouts.sampled {
                    let outcomes = sampled.outcomes();
                    self.shelf.add(outcomes.ok_or_else(|| inconsistent(rollouts.step, rollouts.round))?);
                }
                Ok(None)
            }
            Line::Step(step) => {
                if let Some(Plan { action: Action::Train(batch), .. }) = self.pending.take() {
                    self.shelf.settle(&batch, step.updated, self.max_age);
                    self.shelf.open_step();
                }
                Ok(None)
            }
            Line::Head(_) | Line::End(_) => Ok(None),
        }
    }

    fn call(&mut self, call: &Call) -> Result<Asked> {
        let inconsistent = || inconsistent(call.step, call.round);
        self.pool.extend(&call.offered);
        let groups = self.shelf.groups();
        if Call::counts(&self.pool, &groups) != call.counts {
            return Err(inconsistent());
        }
        if let Some(state) = &call.state {
            self.state = unhex(state).ok_or_else(inconsistent)?;
        }
        let view = View {
            step: call.step,
            round: call.round,
            seed: call.seed,
            budget: call.budget,
            pool: self.pool.clone(),
            groups,
        };
        let plan = Plan { state: self.state.clone(), ..call.plan.clone() };
        self.leave_pool(call);
        self.pending = Some(plan.clone());
        Ok(Asked { view, plan })
    }

    /// Takes off offer what the plan skipped, evicted and was granted.
    fn leave_pool(&mut self, call: &Call) {
        let mut gone: std::collections::HashSet<PromptId> =
            call.plan.skip.iter().chain(&call.plan.evict).copied().collect();
        if let Action::Sample(requests) = &call.plan.action {
            let mut left = call.granted;
            for request in requests {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(u64::from(request.count));
                gone.insert(request.prompt);
            }
        }
        self.pool.retain(|p| !gone.contains(&p.id));
    }
}

fn inconsistent(step: u32, round: u32) -> Trouble {
    let what = format!("the record's lines of step {step}, round {round} do not fit those before them");
    Trouble::new(what).hint("the record was edited or damaged")
}
