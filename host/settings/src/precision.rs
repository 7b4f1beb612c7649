//! What numbers are written as, or computed in.

use serde::{Deserialize, Serialize};

/// What numbers are written as, or computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// Rounded to bfloat16, ties to even: half the size, and what most models are published in.
    Bf16,
}
