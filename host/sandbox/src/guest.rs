//! The room that a guest runs in: its limits and its log.

use std::collections::VecDeque;
use std::time::Duration;

use allot_allocation::log::{Level, LogLine};
use allot_allocation::shown;
use allot_component::Caps;
use wasmtime::{Engine, ResourceLimiter, Store};
use wasmtime_wasi::{WasiCtxView, WasiView};

use crate::facts::Facts;
use crate::restricted_wasi::{LOG, RestrictedWasi};

/// What a line of log counts beside its text.
const LINE: usize = 32;
/// Bytes of a guest's last words that are told.
const SAID: usize = 4 << 10;
/// How often the clock behind [`Caps::time`] ticks.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// What a guest's store holds.
pub(crate) struct GuestState {
    pub limiter: Limiter,
    log: VecDeque<LogLine>,
    log_bytes: usize,
    dropped: u64,
    pub(crate) quiet: Option<Box<RestrictedWasi>>,
    /// What it may ask, while it decides.
    pub(crate) facts: Option<Facts>,
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.quiet.as_mut().expect("WASI is linked only for guests that import it").view()
    }
}

/// Counts a guest's memory and stops it at the limit.
pub(crate) struct Limiter {
    limit: usize,
    pub peak: usize,
    pub refused: Option<usize>,
}

/// What one element of a table takes in this process.
const TABLE_ELEMENT: usize = 16;

impl Limiter {
    /// Counts growth from `current` to `desired` bytes. A component can have several memories and
    /// tables; all count together, each from what it had before.
    fn grow(&mut self, current: usize, desired: usize) -> wasmtime::Result<bool> {
        let total = self.peak.saturating_sub(current).saturating_add(desired);
        if total > self.limit {
            self.refused = Some(total);
            // An error stops the guest here and now. `Ok(false)` would leave it to its allocator,
            // whose abort could not be told from any other.
            return Err(wasmtime::Error::msg("the memory limit"));
        }
        self.peak = total;
        Ok(true)
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // Past the guest's own maximum nothing grows, and nothing is counted.
        if max.is_some_and(|max| desired > max) { Ok(false) } else { self.grow(current, desired) }
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(TABLE_ELEMENT);
        if max.is_some_and(|max| desired > max) {
            Ok(false)
        } else {
            self.grow(bytes(current), bytes(desired))
        }
    }
}

impl GuestState {
    /// A fresh store for one call, in which a guest hands over `most` bytes at a time at most.
    pub fn store(
        engine: &Engine,
        caps: Caps,
        quiet: Option<RestrictedWasi>,
        most: usize,
    ) -> wasmtime::Result<Store<Self>> {
        let limiter = Limiter { limit: caps.memory, peak: 0, refused: None };
        let quiet = quiet.map(Box::new);
        let (log, log_bytes, dropped, facts) = (VecDeque::new(), 0, 0, None);
        let mut store = Store::new(engine, Self { limiter, log, log_bytes, dropped, quiet, facts });
        store.limiter(|room| &mut room.limiter);
        store.set_fuel(caps.fuel)?;
        store.set_epoch_deadline(caps.time.as_nanos().div_ceil(TICK.as_nanos()) as u64 + 1);
        // Counted before anything is copied out of a guest, each list by what it takes here: lists may overlap in a
        // guest's memory, and are each copied.
        store.set_hostcall_fuel(most);
        Ok(store)
    }

    /// Keeps a line of the guest's log, at the cost of the oldest ones where there is no room.
    pub fn write(&mut self, level: Level, text: &str) {
        let text = shown::lines(text, LOG / 4);
        self.log_bytes += LINE + text.len();
        self.log.push_back(LogLine { level, text });
        while self.log_bytes > LOG {
            let Some(oldest) = self.log.pop_front() else { break };
            self.log_bytes -= LINE + oldest.text.len();
            self.dropped += 1;
        }
    }

    /// The log so far; it begins anew.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        let dropped = std::mem::take(&mut self.dropped);
        let first = (dropped > 0)
            .then(|| LogLine { level: Level::Warn, text: format!("{dropped} earlier lines were dropped") });
        self.log_bytes = 0;
        first.into_iter().chain(std::mem::take(&mut self.log)).collect()
    }

    /// The guest's last words: what it printed and logged as a warning or worse, cut to the end.
    pub fn last_words(&self) -> String {
        let printed = self.printed();
        let logged = self.log.iter().filter(|l| l.level >= Level::Warn).map(|l| l.text.as_str());
        let words: Vec<&str> = printed.lines().chain(logged).collect();
        let from = words.len().saturating_sub(20);
        shown::lines(words[from..].join("\n").trim(), SAID)
    }

    /// What the guest printed.
    pub fn printed(&self) -> String {
        self.quiet.as_ref().map(|quiet| quiet.printed()).unwrap_or_default()
    }
}
