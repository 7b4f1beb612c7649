//! Reasons why a run stops before its end.

use allot_allocation::rules::Broken;
use allot_allocation::{Plan, PromptId, View};
use allot_engine::EngineError;
use allot_record::RecordError;
use allot_sandbox::Fault;
use thiserror::Error;

use allot_base::Error;

/// Why a run stops before its end. Finished steps stay in the record.
#[derive(Debug, Error)]
pub enum Stop {
    /// The policy broke a rule.
    #[error("{broken}")]
    Broken {
        /// The rule, and where it was broken.
        broken: Broken,
        /// The policy's input.
        view: Box<View>,
        /// The policy's plan.
        plan: Box<Plan>,
        /// The policy's state.
        state: Vec<u8>,
    },
    /// The policy returned no plan.
    #[error("in step {}, round {} policy `{policy}` {fault}", .view.step, .view.round)]
    Policy {
        /// The policy's name.
        policy: String,
        /// The fault.
        fault: Box<Fault>,
        /// The policy's input.
        view: Box<View>,
        /// The policy's state.
        state: Vec<u8>,
    },
    /// The run was asked to stop. Rollouts that were paid for are kept.
    #[error("stopped on request")]
    Interrupted,
    /// The engine failed.
    #[error("the engine failed in step {step}: {error}")]
    Engine {
        /// The step.
        step: u32,
        /// The error.
        error: EngineError,
    },
    /// The update would have broken the weights.
    #[error(
        "the update of step {step} was refused: {what} is not finite; its batch was {}",
        .batch.iter().map(|(prompt, n)| format!("{n} of prompt {prompt}")).collect::<Vec<_>>().join(", ")
    )]
    Refused {
        /// The step.
        step: u32,
        /// The value that is not finite.
        what: &'static str,
        /// Number of rollouts of each prompt in the batch.
        batch: Vec<(PromptId, usize)>,
    },
    /// The engine did not do what was granted.
    #[error("{fault} (step {step})")]
    Ledger {
        /// The step.
        step: u32,
        /// The deviation.
        fault: allot_allocation::Fault,
    },
    /// Grading is no longer possible.
    #[error("{0}")]
    Reward(Error),
    /// The model produced values that are not finite.
    #[error(
        "{what} not finite: {}",
        if *.updates == 0 { "the weights are broken as they were loaded" } else { "an earlier update has broken the model" }
    )]
    NotFinite {
        /// The values, with a verb.
        what: String,
        /// Number of model updates so far.
        updates: u32,
    },
    /// The record could not be written.
    #[error("{0}")]
    Record(Error),
    /// A table, a curve or a checkpoint could not be written.
    #[error("{0}")]
    Outputs(Error),
    /// A shadow's plans could not be written.
    #[error("{0}")]
    Shadow(Error),
}

impl Stop {
    /// Returns hints, if there are any.
    pub fn hints(&self) -> Vec<String> {
        let one = |hint: &str| vec![hint.to_owned()];
        match self {
            Self::Broken { broken, .. } => one(broken.rule.hint()),
            Self::Policy { fault, .. } => fault.hint().map(one).unwrap_or_default(),
            Self::Engine { error, .. } => error.hint().map(one).unwrap_or_default(),
            Self::Reward(error) | Self::Record(error) | Self::Outputs(error) | Self::Shadow(error) => {
                error.hints.clone()
            }
            Self::NotFinite { updates: 0, .. } => {
                one("check the files that `model.use` names: some of their numbers are NaN or infinite")
            }
            Self::Refused { .. } | Self::NotFinite { .. } => {
                one("lower `optimizer.learning_rate`, and begin from the `model` folder of a checkpoint")
            }
            Self::Interrupted | Self::Ledger { .. } => Vec::new(),
        }
    }

    /// Returns whether resuming may succeed, because the cause may have disappeared.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Policy { .. } | Self::Refused { .. } | Self::NotFinite { .. } => {
                false
            }
            Self::Interrupted
            | Self::Engine { .. }
            | Self::Ledger { .. }
            | Self::Reward(_)
            | Self::Record(_)
            | Self::Outputs(_)
            | Self::Shadow(_) => true,
        }
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Record(error.into())
    }
}
