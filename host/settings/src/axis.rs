//! The six axes of a comparison: the six meanings of "identical compute".

use serde::{Deserialize, Serialize};

/// The x axis of a learning curve, and the unit of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Rollouts sampled, trained on or not.
    Rollouts,
    /// Tokens generated in rollouts.
    Tokens,
    /// Floating-point operations: reading prompts, generating, learning.
    Flops,
    /// Tokens of the answers in updates.
    TrainedTokens,
    /// Wall-clock seconds of the run's steps.
    Seconds,
    /// Steps of the optimizer.
    OptimizerSteps,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Rollouts, Self::Tokens, Self::Flops, Self::TrainedTokens, Self::Seconds, Self::OptimizerSteps];

    /// Returns its name on the command line, in configs and in file names.
    pub fn key(self) -> &'static str {
        match self {
            Self::Rollouts => "rollouts",
            Self::Tokens => "tokens",
            Self::Flops => "flops",
            Self::TrainedTokens => "trained-tokens",
            Self::Seconds => "seconds",
            Self::OptimizerSteps => "optimizer-steps",
        }
    }

    /// Returns the axis of this name.
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.key() == key)
    }

    /// Returns its name in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Rollouts => "rollouts",
            Self::Tokens => "generated tokens",
            Self::Flops => "FLOPs",
            Self::TrainedTokens => "trained tokens",
            Self::Seconds => "device seconds",
            Self::OptimizerSteps => "optimizer steps",
        }
    }
}

/// Default of `compare.margin`: differences in accuracy below one percentage point do not matter.
pub const MARGIN: f64 = 0.01;
