//! The optimizer's settings and moments, and the learning rate over a run.

pub use allot_settings::optimizer::{OptimizerConfig, Schedule};

/// The optimizer's moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Steps made.
    pub steps: u32,
    /// Decayed means of the gradients. Empty before the first step.
    pub means: Vec<f32>,
    /// Decayed means of the squared gradients. Empty before the first step.
    pub squares: Vec<f32>,
}
