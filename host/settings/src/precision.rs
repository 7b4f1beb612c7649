//! The number format of weights and of matrix products.

use serde::{Deserialize, Serialize};

/// A number format of weights or of matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32.
    #[default]
    F32,
    /// bfloat16, rounded to nearest, ties to even.
    Bf16,
}
