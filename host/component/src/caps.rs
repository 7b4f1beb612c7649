//! What one call of a policy may use.

use std::time::Duration;

/// What one call of a policy may use. Set for a slow interpreter, generous for all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Wasm instructions. Decides before the clock does, so that a stop repeats.
    pub fuel: u64,
    /// Time on the clock.
    pub time: Duration,
    /// Bytes of memory.
    pub memory: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { fuel: 50_000_000_000, time: Duration::from_mins(10), memory: 1 << 30 }
    }
}
