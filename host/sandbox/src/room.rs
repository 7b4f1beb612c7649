//! The room that a guest runs in: its limits, its log, and, for guests whose toolchain wants WASI,
//! a quiet one: captured standard output, a frozen clock, seeded randomness, no files, no network,
//! no environment.

use std::time::Duration;

use wasmtime::{Engine, ResourceLimiter, Store};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, ResourceTable, WasiCtx, WasiCtxView, WasiView, random};

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
        Self { fuel: 200_000_000_000, time: Duration::from_secs(120), memory: 1 << 30 }
    }
}

/// How much a line of a guest's log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author.
    Debug,
    /// For anyone.
    Info,
    /// Something looks wrong.
    Warn,
    /// Something is wrong.
    Error,
}

/// A line of a guest's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// The words.
    pub text: String,
}

/// Bytes of log and of standard output that are kept of one call.
const LOG: usize = 64 << 10;
/// How often the clock behind [`Caps::time`] ticks.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// What a guest's store holds.
pub(crate) struct Room {
    pub limiter: Limiter,
    pub log: Vec<Line>,
    log_bytes: usize,
    quiet: Option<Box<Quiet>>,
}

struct Quiet {
    wasi: WasiCtx,
    table: ResourceTable,
    output: MemoryOutputPipe,
}

/// Counts a guest's memory and stops it at the limit.
pub(crate) struct Limiter {
    limit: usize,
    pub peak: usize,
    pub refused: Option<usize>,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        // A component can have several memories; each counts from what it had before.
        let total = self.peak - current.min(self.peak) + desired;
        if total > self.limit {
            self.refused = Some(total);
            // An error stops the guest here and now. `Ok(false)` would leave it to its allocator,
            // whose abort could not be told from any other.
            return Err(wasmtime::Error::msg("the memory limit"));
        }
        self.peak = total;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 1 << 20)
    }
}

impl Room {
    /// A fresh store for one call.
    pub fn store(engine: &Engine, caps: Caps, wasi: bool) -> wasmtime::Result<Store<Self>> {
        let limiter = Limiter { limit: caps.memory, peak: 0, refused: None };
        let quiet = wasi.then(|| Box::new(Quiet::new()));
        let mut store = Store::new(engine, Self { limiter, log: Vec::new(), log_bytes: 0, quiet });
        store.limiter(|room| &mut room.limiter);
        store.set_fuel(caps.fuel)?;
        store.set_epoch_deadline(caps.time.as_nanos().div_ceil(TICK.as_nanos()) as u64 + 1);
        // Lists that a guest returns are copied out of it; they are never larger than its memory.
        store.set_hostcall_fuel(caps.memory);
        Ok(store)
    }

    /// Keeps a line of the guest's log, as long as there is room for it.
    pub fn write(&mut self, level: Level, text: String) {
        self.log_bytes += text.len();
        if self.log_bytes <= LOG {
            self.log.push(Line { level, text });
        }
    }

    /// The guest's last words: what it printed and logged as a warning or worse, cut to the end.
    pub fn last_words(&self) -> String {
        let printed = self.printed();
        let logged = self.log.iter().filter(|l| l.level >= Level::Warn).map(|l| l.text.as_str());
        let words: Vec<&str> = printed.lines().chain(logged).collect();
        let from = words.len().saturating_sub(20);
        words[from..].join("\n").trim().to_owned()
    }

    /// What the guest printed.
    pub fn printed(&self) -> String {
        match &self.quiet {
            Some(quiet) => String::from_utf8_lossy(&quiet.output.contents()).into_owned(),
            None => String::new(),
        }
    }
}

impl WasiView for Room {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let quiet = self.quiet.as_mut().expect("WASI is linked only for guests that import it");
        WasiCtxView { ctx: &mut quiet.wasi, table: &mut quiet.table }
    }
}

impl Quiet {
    fn new() -> Self {
        let output = MemoryOutputPipe::new(LOG);
        let seeded = || random::Deterministic::new((0..=255).collect());
        let mut wasi = wasmtime_wasi::WasiCtxBuilder::new();
        wasi.wall_clock(Frozen)
            .monotonic_clock(Frozen)
            .secure_random(seeded())
            .insecure_random(seeded())
            .insecure_random_seed(42)
            .stdout(output.clone())
            .stderr(output.clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        Self { wasi: wasi.build(), table: ResourceTable::new(), output }
    }
}

/// A clock that stands still.
struct Frozen;

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        // Not 0, on which Go's runtime stops.
        1_000_000
    }
}
