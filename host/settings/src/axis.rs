//! The six axes of a comparison: by what "identical compute" can be meant.

use serde::{Deserialize, Serialize};

/// What a curve is drawn against, and what a cost is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Rollouts sampled, whatever became of them.
    Rollouts,
    /// Tokens generated in them.
    Tokens,
    /// Floating-point operations: reading prompts, generating, learning.
    Flops,
    /// Tokens of answers learned from.
    TrainedTokens,
    /// Seconds of the run's steps.
    Seconds,
    /// Steps of the optimizer.
    OptimizerSteps,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Rollouts, Self::Tokens, Self::Flops, Self::TrainedTokens, Self::Seconds, Self::OptimizerSteps];

    /// Its name on the command line, in configs and in file names.
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

    /// The axis of that name.
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.key() == key)
    }

    /// Its name in words.
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

/// The difference in accuracy that does not matter, where nothing else is said: a point.
pub const MARGIN: f64 = 0.01;
