//! Words for the policy's author. They go to the run's log and change nothing.

pub use crate::bindings::rollout::allocation::log::Level;

/// Writes a line to the run's log; to standard error where the policy runs natively.
pub fn write(level: Level, line: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::rollout::allocation::log::write(level, line);
    #[cfg(not(target_arch = "wasm32"))]
    #[allow(clippy::print_stderr, reason = "this is the log of a native run")]
    {
        eprintln!("{level:?}: {line}");
    }
}

/// Writes a line of interest to anyone.
pub fn info(line: &str) {
    write(Level::Info, line);
}

/// Writes a line about something that looks wrong.
pub fn warn(line: &str) {
    write(Level::Warn, line);
}
