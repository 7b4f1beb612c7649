//! `[reward.python]` of a config: the sandbox of graders `python` and `math-verify`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How generated Python is judged, or math-verify runs, in the sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PythonConfig {
    /// The file with CPython's module; by default the one that `allot fetch python` has fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<PathBuf>,
    /// For grader `math-verify` the folder with its wheels; by default what `allot fetch math-verify` has fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wheels: Option<PathBuf>,
    /// Wasm instructions for one answer. An answer that needs more is wrong.
    pub fuel: u64,
    /// Bytes of memory for one answer. Python raises a `MemoryError` beyond.
    pub memory: usize,
    /// Whether the reward grows with the share of tests passed, from `wrong` to `right`; an answer is correct if it
    /// passes all of them.
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

/// The least memory that CPython starts in, in bytes.
pub const LEAST_MEMORY: usize = 64 << 20;

impl PythonConfig {
    /// A key with a value that it can't have, and the rule.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        if self.fuel == 0 || self.fuel > 1 << 50 {
            return Some(("python.fuel", self.fuel as f64, "it is from 1 to 2^50"));
        }
        if !(LEAST_MEMORY..=1 << 32).contains(&self.memory) {
            return Some(("python.memory", self.memory as f64, "it is from 64 MiB, 67108864, to 4 GiB"));
        }
        None
    }
}
