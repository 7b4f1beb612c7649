//! What is read in this process, watched: how long it takes, and the memory that it comes to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No case may take longer.
pub const LONGEST: Duration = Duration::from_mins(1);

/// Memory that a process may come to have over a file of at most some megabytes, in KiB.
pub const MOST_MEMORY: u64 = 2 << 20;

/// When the file at hand was begun, in milliseconds of this process; 0 while there is none.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A reading under way.
pub struct Watched(Instant);

impl Watched {
    /// From now on.
    pub fn begin() -> Self {
        BEGUN.store(since_start(), Ordering::Relaxed);
        Self(Instant::now())
    }

    /// Until now: how long it took.
    pub fn end(self) -> Duration {
        BEGUN.store(0, Ordering::Relaxed);
        self.0.elapsed()
    }
}

fn since_start() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    1 + START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Ends this process if a file is read for too long: what never ends can't be caught otherwise. The case's folder stays.
pub fn watch() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let begun = BEGUN.load(Ordering::Relaxed);
                if begun > 0 && since_start().saturating_sub(begun) > 2 * LONGEST.as_millis() as u64 {
                    eprintln!("error: a file is read without end; it is in the folder `case` of its class");
                    std::process::exit(2);
                }
            }
        });
    });
}

/// The most memory that this process had, in KiB.
pub fn memory() -> u64 {
    memory_of("self").unwrap_or(0)
}

/// The same of another one, by its number; none once it is over.
pub fn memory_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().split(' ').next()?.parse().ok()
}
