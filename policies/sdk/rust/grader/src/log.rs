//! Words for the grader's author. They are shown beside what goes wrong, and change nothing.

pub use crate::bindings::rollout::reward::log::Level;

/// Writes a line; to standard error where the grader runs natively.
pub fn write(level: Level, line: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::rollout::reward::log::write(level, line);
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
