//! The state of a guest's store: its limits and its log.

use std::collections::VecDeque;
use std::time::Duration;

use allot_allocation::log::{Level, LogLine};
use allot_allocation::shown;
use allot_component::Caps;
use wasmtime::{Engine, ResourceLimiter, Store};
use wasmtime_wasi::{WasiCtxView, WasiView};

use crate::facts::Facts;
use crate::fault::Misuse;
use crate::restricted_wasi::{LOG, RestrictedWasi};

/// Bytes that a log line counts in addition to its text.
const LINE: usize = 32;
/// Most bytes of a guest's last output in an error.
const SAID: usize = 4 << 10;
/// Interval of the clock behind [`Caps::time`].
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The data of a guest's store.
pub(crate) struct GuestState {
    pub limiter: Limiter,
    log: VecDeque<LogLine>,
    log_bytes: usize,
    dropped: u64,
    pub(crate) quiet: Option<Box<RestrictedWasi>>,
    /// Facts that the guest may request during `decide`.
    pub(crate) facts: Option<Facts>,
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.quiet.as_mut().expect("WASI is linked only for guests that import it").view()
    }
}

/// Counts a guest's memory and stops the guest at the limit.
pub(crate) struct Limiter {
    limit: usize,
    pub peak: usize,
    pub refused: Option<usize>,
}

/// Bytes that one table element takes in this process.
pub(crate) const TABLE_ELEMENT: usize = 16;

impl Limiter {
    /// Counts growth from `current` to `desired` bytes. A component can have several memories and tables;
    /// they count together.
    fn grow(&mut self, current: usize, desired: usize) -> wasmtime::Result<bool> {
        let total = self.peak.saturating_sub(current).saturating_add(desired);
        if total > self.limit {
            self.refused = Some(total);
            // An error stops the guest here. With `Ok(false)` its allocator would abort, which looks like
            // any other abort.
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
        // Growth beyond the guest's own maximum fails and is not counted.
        if max.is_some_and(|max| desired > max) { Ok(false) } else { self.grow(current, desired) }
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(TABLE_ELEMENT);
        // Where memory is kept between calls the maximum is that of the kept table, which no guest should tell from none.
        let max = max.filter(|max| *max < self.limit / TABLE_ELEMENT);
        if max.is_some_and(|max| desired > max) {
            Ok(false)
        } else {
            self.grow(bytes(current), bytes(desired))
        }
    }
}

impl GuestState {
    /// Returns the facts that the guest asks for.
    pub(crate) fn facts(&mut self) -> wasmtime::Result<&mut Facts> {
        self.facts.as_mut().ok_or_else(|| {
            let what = "asked for facts, which only `decide` may do".to_owned();
            Misuse::new(what, "ask for them in `decide`").into()
        })
    }

    /// Returns a fresh store for one call. The guest may return at most `most` bytes at a time.
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
        // The bytes are counted before anything is copied out of a guest, each list by its size on the
        // host. Lists may overlap in a guest's memory, and each is copied.
        store.set_hostcall_fuel(most);
        Ok(store)
    }

    /// Appends a line to the guest's log. Drops the oldest lines if the log is full.
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

    /// Returns the log so far and empties it.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        let dropped = std::mem::take(&mut self.dropped);
        let first = (dropped > 0)
            .then(|| LogLine { level: Level::Warn, text: format!("{dropped} earlier lines were dropped") });
        self.log_bytes = 0;
        first.into_iter().chain(std::mem::take(&mut self.log)).collect()
    }

    /// Returns the end of the guest's output: what it printed, then what it logged as warnings or errors.
    pub fn last_words(&self) -> String {
        let printed = self.printed();
        let logged = self.log.iter().filter(|l| l.level >= Level::Warn).map(|l| l.text.as_str());
        let words: Vec<&str> = printed.lines().chain(logged).collect();
        let from = words.len().saturating_sub(20);
        shown::lines(words[from..].join("\n").trim(), SAID)
    }

    /// Returns the text that the guest printed.
    pub fn printed(&self) -> String {
        self.quiet.as_ref().map(|quiet| quiet.printed()).unwrap_or_default()
    }
}
