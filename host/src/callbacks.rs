//! The interfaces of a run: the policy, and callbacks that evaluate, write tables and curves, and pause.

use allot_allocation::{Outcome, Plan, RolloutId, Run, Settled, View};
use allot_engine::{Engine, Sample};
use allot_loop::{Clipped, Learned, Round, Scores};
use allot_record::StepEnd;
use allot_sandbox::{Fault, LogLine};

use crate::stop::Stop;
use crate::world::World;
use allot_base::Error;
use allot_judges::math::Certain;
use allot_judges::protocol::Part;

/// A policy: a component in its sandbox, or a function in a test.
pub trait Decide {
    /// The policy's name.
    fn name(&self) -> &str;
    /// Calls the contract's `decide`. Returns the plan and the policy's log lines.
    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault>;
    /// Shows a valid plan to observing policies. Their plans are not carried out, and their time does not
    /// count.
    fn show(&mut self, _view: &View, _plan: &Plan) -> Result<(), Error> {
        Ok(())
    }
}

/// Rollouts that have arrived.
#[derive(Clone, Copy, Debug)]
pub struct CameIn<'a, A> {
    /// The round.
    pub round: &'a Round,
    /// The first one's id.
    pub first: RolloutId,
    /// The rollouts as the engine returned them.
    pub samples: &'a [Sample<A>],
    /// The rollouts as the policy sees them.
    pub outcomes: &'a [Outcome],
    /// The parts of each rollout's reward.
    pub parts: &'a [Vec<Part>],
    /// How many of their rewards math-verify has given, and how many of these were certain without it.
    pub certain: Certain,
}

/// Whether a run continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It continues.
    On,
    /// It pauses, and can be resumed.
    Pause,
}

/// Callbacks of a run. Only the result of [`evaluate`](Self::evaluate) is recorded.
pub trait Callbacks<E: Engine, R, P> {
    /// Evaluates the current model.
    fn evaluate(&mut self, world: &mut World<E, R, P>) -> impl Future<Output = Result<Scores, Stop>>;

    /// Called with the policy's plan, before the rules are checked, and its log lines.
    fn decided(&mut self, _view: &View, _plan: &Plan, _said: &[LogLine]) -> Result<(), Stop> {
        Ok(())
    }

    /// Called if less was granted than the plan requested, unless the budget was already spent.
    fn clipped(&mut self, _clipped: &Clipped) {}

    /// Called when rollouts have arrived: those of a round, or of one of its portions.
    fn sampled(&mut self, _came: CameIn<'_, E::Answer>) -> Result<(), Stop> {
        Ok(())
    }

    /// Called when a step is settled.
    fn settled(&mut self, _settled: &Settled, _learned: &[Learned]) -> Result<(), Stop> {
        Ok(())
    }

    /// Called when a step has ended and is in the record.
    fn after(&mut self, _world: &mut World<E, R, P>, _end: &StepEnd) -> Result<Go, Stop> {
        Ok(Go::On)
    }

    /// Called when the run was asked to stop. Saves what is needed to resume from here.
    fn pause(&mut self, _world: &mut World<E, R, P>) -> Result<(), Stop> {
        Ok(())
    }
}
