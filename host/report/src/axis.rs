//! The six axes of a comparison: by what "identical compute" can be meant.

use allot_allocation::{Compute, Spent};
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

/// What a run had cost by some moment, evaluation left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Rollouts and generated tokens.
    pub spent: Spent,
    /// All else but time.
    pub compute: Compute,
    /// Seconds of the run's steps, where the run kept its times.
    pub seconds: Option<f64>,
}

impl Costs {
    /// The cost on an axis. None where the run does not know: of a run without a model nobody knows the
    /// FLOPs.
    pub fn on(&self, axis: Axis) -> Option<f64> {
        match axis {
            Axis::Rollouts => Some(self.spent.run_rollouts as f64),
            Axis::Tokens => Some(self.spent.run_tokens as f64),
            Axis::Flops => Some(self.compute.flops.total()).filter(|f| *f > 0.0 || self.nothing()),
            Axis::TrainedTokens => Some(self.compute.trained_tokens as f64),
            Axis::Seconds => self.seconds,
            Axis::OptimizerSteps => Some(self.compute.optimizer_steps as f64),
        }
    }

    /// Whether nothing was sampled yet.
    fn nothing(&self) -> bool {
        self.spent.run_rollouts == 0
    }
}
