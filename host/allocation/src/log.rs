//! A policy's log, for people to read.

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Details for the policy's author.
    Debug,
    /// Information for every user.
    Info,
    /// A possible problem.
    Warn,
    /// An error.
    Error,
}

/// A line of a policy's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The level.
    pub level: Level,
    /// The text.
    pub text: String,
}
