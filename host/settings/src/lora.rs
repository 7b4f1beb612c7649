//! Low-rank adapters (Hu et al. 2021, LoRA).

use serde::{Deserialize, Serialize};

/// Rank and scale of the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Rows of `A` and columns of `B`.
    pub rank: usize,
    /// The adapters' output is multiplied by `alpha / rank`.
    pub alpha: f32,
}
