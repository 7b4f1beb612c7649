//! A trainer's orders: sample, train or stop.

use allot_allocation::{Geometry, PromptId, SamplerSettings};
use allot_loop::Learned;
use serde::Serialize;

/// The next order for the trainer.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Order {
    /// `asked` is the number of rollouts that the policy requested. The budget may allow fewer draws.
    Sample {
        step: u32,
        round: u32,
        draws: Vec<Draw>,
        asked: u64,
    },
    Train {
        step: u32,
        round: u32,
        rollouts: Vec<Learned>,
        hold: Vec<PromptId>,
        /// The geometry of the update; none for the trainer's default.
        update: Option<Geometry>,
    },
    Over {
        reason: String,
    },
}

/// Rollouts of one prompt to sample.
#[derive(Serialize)]
pub struct Draw {
    pub prompt: PromptId,
    pub count: u32,
    /// The seed of each rollout, so that runs with the same seed are paired.
    pub seeds: Vec<u64>,
    /// How to sample them; none for the run's own way.
    pub sampling: Option<SamplerSettings>,
}
