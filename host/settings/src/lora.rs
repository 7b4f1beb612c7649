//! Low-rank adapters (Hu et al. 2021, LoRA).

use serde::{Deserialize, Serialize};

/// The adapters' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Rows of `A`, columns of `B`.
    pub rank: usize,
    /// What the adapters' part is multiplied with, times the rank.
    pub alpha: f32,
}
