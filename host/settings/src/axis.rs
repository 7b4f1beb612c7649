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
    /// Floating-point operations: for prompts, generation and training.
    Flops,
    /// Answer tokens in updates.
    TrainedTokens,
    /// Wall-clock seconds of the run's steps.
    Seconds,
    /// Optimizer steps.
    OptimizerSteps,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 6] =
        [Self::Rollouts, Self::Tokens, Self::Flops, Self::TrainedTokens, Self::Seconds, Self::OptimizerSteps];

    /// Returns the axis's name on the command line, in configs and in file names.
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

    /// Returns the axis with this name.
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.key() == key)
    }

    /// Returns the axis's name in a sentence.
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
