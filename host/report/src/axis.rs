//! Costs of a run, on each axis of a comparison.

use allot_allocation::{Compute, Spent};
pub use allot_settings::axis::{Axis, MARGIN};
use serde::{Deserialize, Serialize};

/// Costs of a run up to some moment, without evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Rollouts and generated tokens.
    pub spent: Spent,
    /// All other costs except time.
    pub compute: Compute,
    /// Seconds of the run's steps, if the run kept its times.
    pub seconds: Option<f64>,
}

impl Costs {
    /// Returns the cost on an axis; `None` if it is not known, such as FLOPs of a run without a model.
    pub fn on(&self, axis: Axis) -> Option<f64> {
        match axis {
            Axis::Rollouts => Some(self.spent.run_rollouts as f64),
            Axis::Tokens => Some(self.spent.run_tokens as f64),
            Axis::Flops => Some(self.compute.flops.total()).filter(|f| *f > 0.0 || self.nothing()),
            Axis::TrainedTokens => self.known().then_some(self.compute.trained_tokens as f64),
            Axis::Seconds => self.seconds,
            Axis::OptimizerSteps => self.known().then_some(self.compute.optimizer_steps as f64),
        }
    }

    /// Whether computing was counted. Trainers in Python count none of it.
    fn known(&self) -> bool {
        self.nothing() || self.compute != Compute::default()
    }

    /// Whether no rollout was sampled yet.
    fn nothing(&self) -> bool {
        self.spent.run_rollouts == 0
    }
}
