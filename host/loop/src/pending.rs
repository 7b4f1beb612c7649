//! Pending steps: decided steps that wait for their updates, in a run with a lag.
//!
//! With a lag of n, a decided step is settled immediately. Its update is applied after the plans of the
//! next n steps. Those plans and their rollouts use the weights before the update, while the engine may
//! compute it in parallel. The weights used depend on the plans alone, never on timing.
//!
//! ```text
//! plan of step t ─► settled, waits ─► begun ─┬─► step t+1 is decided and sampled ─┬─► made, recorded, evaluated
//!                                            └─► the engine works on it ──────────┘
//! ```

use allot_allocation::{Compute, Geometry, RolloutId, Settled};
use allot_record::StepEnd;
use serde::{Deserialize, Serialize};

use crate::machine::unreachable_turn;
use crate::{At, Costs, Learned, Loop, Next, Step, Update};

/// A step that is decided and settled, and whose update is not applied yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The batch to train on.
    pub update: Update,
    /// The step's line of the record, as far as it is known.
    end: Box<StepEnd>,
    /// Whether the model is evaluated after this step.
    due: bool,
    /// Maximum cost of the update in operations, or 0 if operations are not limited.
    reserved: f64,
    /// Whether [`Next::Begin`] was returned for this step.
    #[serde(skip)]
    begun: bool,
}

impl Pending {
    fn batch(&self) -> (Vec<Learned>, Option<Geometry>) {
        (self.update.rollouts.clone(), self.update.batch.update)
    }

    /// Returns how many held rollouts are discarded because the limit on operations has no room for them.
    pub(crate) fn unaffordable(&self) -> u64 {
        self.end.unaffordable
    }
}

impl Loop {
    /// Settles a step by its plan and queues its update.
    pub(crate) fn put_off(&mut self, step: Step, update: Update, costs: Costs<'_>) -> Settled {
        let updated = !update.rollouts.is_empty();
        let ids: Vec<RolloutId> = update.rollouts.iter().map(|learned| learned.id).collect();
        // Costs are known only if operations are limited.
        let learning = |(prompt, tokens): (_, _)| costs(prompt, tokens).learning;
        let limited = self.counts_operations() && updated;
        let reserved = if limited {
            let found = self.state.buffer.find(&ids);
            ids.iter().filter_map(|id| found.get(id)).copied().map(learning).sum()
        } else {
            0.0
        };
        let end = Box::default();
        self.state.pending.push_back(Pending {
            update: update.clone(),
            end,
            due: false,
            reserved,
            begun: false,
        });
        let (settled, end, due) = self.settle(step, &update, updated, costs);
        if let Some(last) = self.state.pending.back_mut() {
            (*last.end, last.due) = (end, due);
        }
        settled
    }

    /// Returns the next action for pending steps before a new step opens. Applies the first update if too
    /// many steps are pending, or if nothing can be sampled before it.
    pub(crate) fn next_of_pending(&mut self, costs: Costs<'_>) -> Option<Next> {
        self.state.pending.front()?;
        // An applied update may free operations that were reserved for it.
        let dry = || self.left([].iter(), costs).is_some_and(|left| left.is_nothing());
        let idle = self.has_no_more_steps() || self.state.ledger.exhausted() || dry();
        let full = self.state.pending.len() > self.of.run.lag as usize;
        if full || idle {
            return self.finish();
        }
        let first = self.state.pending.front_mut().filter(|first| !first.begun)?;
        first.begun = true;
        let (rollouts, geometry) = first.batch();
        Some(Next::Begin(rollouts, geometry))
    }

    /// Returns the action that applies the first pending update, if there is one.
    pub(crate) fn finish(&mut self) -> Option<Next> {
        let (rollouts, geometry) = self.state.pending.front()?.batch();
        self.out = true;
        Some(Next::Finish(rollouts, geometry))
    }

    /// Takes the result of the first pending update: the engine's metrics and the compute spent. The model
    /// is unchanged if the step had nothing to train on.
    pub fn finished(&mut self, metrics: Vec<(String, f64)>, computed: Compute, costs: Costs<'_>) {
        let Some(first) = self.state.pending.pop_front() else { unreachable_turn("an update") };
        self.out = false;
        let mut end = first.end;
        end.metrics = metrics;
        // A step's line counts compute up to its own update. Later pending steps have their lines after
        // this one, so they include it.
        self.state.measured.compute += computed;
        let later = self.state.pending.iter_mut().map(|pending| &mut pending.end);
        later.chain([&mut end]).for_each(|end| end.compute += computed);
        self.state.buffer.made(end.updated);
        self.state.version += u32::from(end.updated);
        self.state.last = Some((end.spent, end.compute));
        self.close(costs);
        self.state.at = if first.due { At::Evaluating(end) } else { At::Ended(end) };
    }

    /// Returns the maximum cost of all pending updates, in operations.
    pub(crate) fn reserved(&self) -> f64 {
        self.state.pending.iter().map(|pending| pending.reserved).sum()
    }
}
