//! Steps that are decided and wait for their updates, where a run has a lag.
//!
//! With a lag of n a step that is decided is settled at once, and its update waits until the plans of n further steps
//! are made: so far these are asked for and sampled at the weights before it, while an engine that can works on it.
//! Which weights that are follows from the plans alone, and never from how long anything takes.
//!
//! ```text
//! plan of step t ─► settled, waits ─► begun ─┬─► step t+1 is decided and sampled ─┬─► made, told of, evaluated
//!                                            └─► the engine works on it ──────────┘
//! ```

use allot_allocation::{Compute, Geometry, RolloutId, Settled};
use allot_record::StepEnd;
use serde::{Deserialize, Serialize};

use crate::machine::unreachable_turn;
use crate::{At, Costs, Learned, Loop, Next, Step, Update};

/// A step that is decided and settled, and whose update is not made yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// What it is trained on.
    pub update: Update,
    /// What goes to the record of it, as far as it is known.
    end: Box<StepEnd>,
    /// Whether the model is evaluated after it.
    due: bool,
    /// Operations that the update takes at most, where these are limited.
    reserved: f64,
    /// Whether the engine was told to begin.
    #[serde(skip)]
    begun: bool,
}

impl Pending {
    fn batch(&self) -> (Vec<Learned>, Option<Geometry>) {
        (self.update.rollouts.clone(), self.update.batch.update)
    }

    /// Rollouts that its plan held and that the budget of operations has no room for.
    pub(crate) fn unaffordable(&self) -> u64 {
        self.end.unaffordable
    }
}

impl Loop {
    /// Settles a step by its plan. Its update waits.
    pub(crate) fn put_off(&mut self, step: Step, update: Update, costs: Costs<'_>) -> Settled {
        let updated = !update.rollouts.is_empty();
        let ids: Vec<RolloutId> = update.rollouts.iter().map(|learned| learned.id).collect();
        // Costs are only asked where operations are limited.
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

    /// What is done for the steps that wait before the next one is opened. The first of them is made where more wait
    /// than may, or where nothing is sampled until then.
    pub(crate) fn next_of_pending(&mut self, costs: Costs<'_>) -> Option<Next> {
        self.state.pending.front()?;
        // What is reserved for updates may come free when they are made.
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

    /// The first step that waits is to be made, if one waits.
    pub(crate) fn finish(&mut self) -> Option<Next> {
        let (rollouts, geometry) = self.state.pending.front()?.batch();
        self.out = true;
        Some(Next::Finish(rollouts, geometry))
    }

    /// The update of the first step that waited was made, unless there was nothing to update the model by. This is what
    /// is told of it, and what it computed.
    pub fn finished(&mut self, metrics: Vec<(String, f64)>, computed: Compute, costs: Costs<'_>) {
        let Some(first) = self.state.pending.pop_front() else { unreachable_turn("an update") };
        self.out = false;
        let mut end = first.end;
        end.metrics = metrics;
        // What a step's line tells is what was computed by its plan and its own update: the later ones that wait come after
        // this one.
        self.state.measured.compute += computed;
        let later = self.state.pending.iter_mut().map(|pending| &mut pending.end);
        later.chain([&mut end]).for_each(|end| end.compute += computed);
        self.state.buffer.made(end.updated);
        self.state.version += u32::from(end.updated);
        self.state.last = Some((end.spent, end.compute));
        self.close(costs);
        self.state.at = if first.due { At::Evaluating(end) } else { At::Ended(end) };
    }

    /// Operations that updates take at most which are still to be made.
    pub(crate) fn reserved(&self) -> f64 {
        self.state.pending.iter().map(|pending| pending.reserved).sum()
    }
}
