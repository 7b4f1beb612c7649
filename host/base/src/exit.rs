//! Exit codes, as the caller sees them: a shell, a script, a comparison.

use serde::{Deserialize, Serialize};

/// The program's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Done, and what it looked at is as it should be.
    Good = 0,
    /// It did what it could, and that is not all: a check failed, a run was paused, a run of a comparison failed.
    Bad = 1,
    /// An error, which it told: [`Error`](crate::Error).
    Error = 2,
    /// A check found nothing wrong, and did not test everything.
    Incomplete = 3,
}

impl Exit {
    /// The number that the system gets.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From such a number. Other numbers are errors of whatever ran the program.
    pub fn of(code: i32) -> Self {
        match code {
            0 => Self::Good,
            1 => Self::Bad,
            3 => Self::Incomplete,
            _ => Self::Error,
        }
    }
}
