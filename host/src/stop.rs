//! Why a run stops in the middle.

use allot_allocation::rules::Broken;
use allot_allocation::{Plan, PromptId, View};
use allot_engine::EngineError;
use allot_record::RecordError;
use allot_sandbox::Fault;
use thiserror::Error;

use allot_base::Error;

/// Why a run stops in the middle. Whatever was finished stays in the record.
#[derive(Debug, Error)]
pub enum Stop {
    /// The policy broke a rule.
    #[error("{broken}")]
    Broken {
        /// The rule, and where.
        broken: Broken,
        /// What the policy was shown.
        view: Box<View>,
        /// What it answered.
        plan: Box<Plan>,
        /// What it remembered.
        state: Vec<u8>,
    },
    /// The policy gave no answer.
    #[error("in step {}, round {} policy `{policy}` {fault}", .view.step, .view.round)]
    Policy {
        /// Its name.
        policy: String,
        /// What happened.
        fault: Box<Fault>,
        /// What it was shown.
        view: Box<View>,
        /// What it remembered.
        state: Vec<u8>,
    },
    /// The run was asked to stop. Rollouts paid for by then are kept.
    #[error("stopped on request")]
    Interrupted,
    /// The engine failed.
    #[error("the engine failed in step {step}: {error}")]
    Engine {
        /// The step.
        step: u32,
        /// Why.
        error: EngineError,
    },
    /// An update that would have broken the weights.
    #[error(
        "the update of step {step} was refused: {what} is not finite; its batch was {}",
        .batch.iter().map(|(prompt, n)| format!("{n} of prompt {prompt}")).collect::<Vec<_>>().join(", ")
    )]
    Refused {
        /// The step.
        step: u32,
        /// What is not finite.
        what: &'static str,
        /// Rollouts of each prompt.
        batch: Vec<(PromptId, usize)>,
    },
    /// The engine did something else than it was granted.
    #[error("{fault} (step {step})")]
    Ledger {
        /// The step.
        step: u32,
        /// What it did.
        fault: allot_allocation::Fault,
    },
    /// Nothing can be judged any more.
    #[error("{0}")]
    Reward(Error),
    /// Numbers of the model that are none.
    #[error(
        "{what} not finite: {}",
        if *.updates == 0 { "the weights are broken as they were loaded" } else { "an earlier update has broken the model" }
    )]
    NotFinite {
        /// What is not, with its verb.
        what: String,
        /// Model updates made by then.
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
    /// What to do about it, where there is something to do.
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

    /// Whether a run that is taken up again would not come to the same: what was in its way may be gone.
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
