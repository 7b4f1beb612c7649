//! CPU time, which does not count who else is at work on the machine, and the most memory that was held.

/// Seconds that this thread has computed.
#[cfg(unix)]
pub fn thread() -> f64 {
    seconds(rustix::time::ClockId::ThreadCPUTime)
}

/// Seconds that this process has computed.
#[cfg(unix)]
pub fn process() -> f64 {
    seconds(rustix::time::ClockId::ProcessCPUTime)
}

#[cfg(unix)]
fn seconds(clock: rustix::time::ClockId) -> f64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Where no system tells CPU time it is time on the clock.
#[cfg(not(unix))]
pub fn thread() -> f64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_secs_f64()
}

/// The same.
#[cfg(not(unix))]
pub fn process() -> f64 {
    thread()
}

/// The most memory that this process held, in MB; 0 where the system does not tell.
pub fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3
}
