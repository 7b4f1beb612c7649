//! Limits on one call of a policy.

use std::time::Duration;

/// Limits on one call of a policy. The defaults suit a slow interpreter and are generous for anything else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Wasm instructions. This limit takes effect before the time limit, so that a stop is reproducible.
    pub fuel: u64,
    /// Wall-clock time.
    pub time: Duration,
    /// Memory, in bytes.
    pub memory: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { fuel: 50_000_000_000, time: Duration::from_mins(10), memory: 1 << 30 }
    }
}
