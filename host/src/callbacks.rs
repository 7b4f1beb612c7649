//! Who goes along with a run: the policy that decides, and callbacks that evaluate, keep tables and curves, and pause.

use allot_allocation::{Outcome, Plan, RolloutId, Run, Settled, View};
use allot_engine::{Engine, Sample};
use allot_loop::{Clipped, Learned, Round, Scores};
use allot_record::StepEnd;
use allot_sandbox::{Fault, LogLine};

use crate::stop::Stop;
use crate::world::World;
use allot_base::Error;
use allot_judges::protocol::Part;

/// A policy: a component in its sandbox, or a function in a test.
pub trait Decide {
    /// The policy's name.
    fn name(&self) -> &str;
    /// The contract's `decide`, and what the policy logged.
    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault>;
    /// Shows a plan that keeps the rules to others who would have decided. Neither their answers nor their
    /// time count.
    fn show(&mut self, _view: &View, _plan: &Plan) -> Result<(), Error> {
        Ok(())
    }
}

/// Rollouts that came in.
#[derive(Clone, Copy, Debug)]
pub struct CameIn<'a, A> {
    /// The round.
    pub round: &'a Round,
    /// The first one's number.
    pub first: RolloutId,
    /// As the engine gave them.
    pub samples: &'a [Sample<A>],
    /// As the policy sees them.
    pub outcomes: &'a [Outcome],
    /// The parts of each one's reward.
    pub parts: &'a [Vec<Part>],
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It pauses, and can be taken up again.
    Pause,
}

/// What a run calls as it goes. Only [`evaluate`](Self::evaluate) has a say in its record.
pub trait Callbacks<E: Engine, R, P> {
    /// Evaluates the model as it is.
    fn evaluate(&mut self, world: &mut World<E, R, P>) -> impl Future<Output = Result<Scores, Stop>>;

    /// The policy answered with a plan, which may still break a rule, and said this.
    fn decided(&mut self, _view: &View, _plan: &Plan, _said: &[LogLine]) -> Result<(), Stop> {
        Ok(())
    }

    /// Less was granted than the plan asked for. The budget's end by the plan's own will is not told of.
    fn clipped(&mut self, _clipped: &Clipped) {}

    /// Rollouts came in: those of a round or, where it is in portions, of one of them.
    fn sampled(&mut self, _came: CameIn<'_, E::Answer>) -> Result<(), Stop> {
        Ok(())
    }

    /// A step was settled.
    fn settled(&mut self, _settled: &Settled, _learned: &[Learned]) -> Result<(), Stop> {
        Ok(())
    }

    /// A step ended, and is in the record.
    fn after(&mut self, _world: &mut World<E, R, P>, _end: &StepEnd) -> Result<Go, Stop> {
        Ok(Go::On)
    }

    /// The run was asked to stop: saves what is needed to resume from here.
    fn pause(&mut self, _world: &mut World<E, R, P>) -> Result<(), Stop> {
        Ok(())
    }
}
