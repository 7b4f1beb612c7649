//! What the trainer is to do: sample, learn, or stop.

use allot_allocation::{Geometry, PromptId};
use allot_loop::Learned;
use serde::Serialize;

/// What the trainer is to do.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Order {
    /// `asked` is how many rollouts the policy asked for; fewer are drawn where the budget has no room.
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
        /// How the update is made; none for the trainer's own way.
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
    /// Where the randomness of each comes from, so that runs of one seed are paired.
    pub seeds: Vec<u64>,
}
