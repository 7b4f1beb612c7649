//! What a call cost, and what was said in it.

use allot_allocation::log::{Level, LogLine};

/// What one call cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Wasm instructions. Good for a stop that repeats, never for a result: the count changes
    /// between versions of the Wasm engine.
    pub fuel: u64,
    /// The most memory that the guest had, in bytes.
    pub memory: usize,
    /// What it logged.
    pub log: Vec<LogLine>,
    /// What it printed, where it could.
    pub printed: String,
}

impl Cost {
    /// What it logged, and then what it printed.
    pub fn words(self) -> impl Iterator<Item = LogLine> {
        let printed: Vec<LogLine> =
            self.printed.lines().map(|text| LogLine { level: Level::Info, text: text.to_owned() }).collect();
        self.log.into_iter().chain(printed)
    }
}
