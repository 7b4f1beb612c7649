//! Exit codes of the program.

use serde::{Deserialize, Serialize};

/// The program's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The command succeeded and found no problem.
    Good = 0,
    /// The command finished incompletely: a check or a run of a comparison failed, or a run was paused.
    Bad = 1,
    /// The command failed and reported an error: [`Error`](crate::Error).
    Error = 2,
    /// A check found no problem but could not test everything.
    Incomplete = 3,
}

impl Exit {
    /// Returns the number passed to the operating system.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the exit code for a number. Unknown numbers become [`Exit::Error`].
    pub fn of(code: i32) -> Self {
        match code {
            0 => Self::Good,
            1 => Self::Bad,
            3 => Self::Incomplete,
            _ => Self::Error,
        }
    }
}
