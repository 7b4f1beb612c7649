//! The cost of a call, and its output.

use allot_allocation::log::{Level, LogLine};

/// The cost of one call, and its output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Wasm instructions executed. Use the count only as a reproducible limit, never for a result: it
    /// changes between versions of the Wasm engine.
    pub fuel: u64,
    /// The guest's peak memory, in bytes.
    pub memory: usize,
    /// Lines that the guest logged.
    pub log: Vec<LogLine>,
    /// Text that the guest printed; empty without WASI.
    pub printed: String,
}

impl Cost {
    /// Returns the logged lines, then the printed ones.
    pub fn words(self) -> impl Iterator<Item = LogLine> {
        let printed: Vec<LogLine> =
            self.printed.lines().map(|text| LogLine { level: Level::Info, text: text.to_owned() }).collect();
        self.log.into_iter().chain(printed)
    }
}
