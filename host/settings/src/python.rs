//! `[reward.python]` of a config: the sandbox of graders `python` and `math-verify`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The sandbox for generated Python, or for math-verify.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PythonConfig {
    /// CPython's Wasm module; by default the one that `allot fetch python` downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<PathBuf>,
    /// For `math-verify`: the folder with its wheels. By default that of `allot fetch math-verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wheels: Option<PathBuf>,
    /// Limit of Wasm instructions for one answer. An answer that needs more is incorrect.
    pub fuel: u64,
    /// Memory limit for one answer, in bytes. Beyond it Python raises `MemoryError`.
    pub memory: usize,
    /// Whether the reward grows with the share of tests passed, from `wrong` to `right`. An answer that
    /// passes all tests is correct.
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for PythonConfig {
    fn default() -> Self {
        Self { interpreter: None, wheels: None, fuel: 10_000_000_000, memory: 256 << 20, partial: false }
    }
}

/// The smallest memory limit that CPython starts in, in bytes.
pub const LEAST_MEMORY: usize = 64 << 20;

impl PythonConfig {
    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        if self.fuel == 0 || self.fuel > 1 << 50 {
            return Some(("python.fuel", self.fuel as f64, "expected 1 to 2^50"));
        }
        if !(LEAST_MEMORY..=1 << 32).contains(&self.memory) {
            return Some(("python.memory", self.memory as f64, "expected 67108864 (64 MiB) to 4 GiB"));
        }
        None
    }
}
