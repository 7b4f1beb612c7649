//! When the score is taken: after so many steps, rollouts or tokens.

use crate::Spent;

/// When the score is taken, beside the start and the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After every so many steps.
    Steps(u32),
    /// After each step in which the run's rollouts pass a multiple of this.
    Rollouts(u64),
    /// After each step in which the run's generated tokens pass a multiple of this.
    Tokens(u64),
}

impl Every {
    /// Whether it is due after so many steps, between these two states of the ledger.
    pub fn due(self, steps: u32, before: Spent, after: Spent) -> bool {
        match self {
            Self::Steps(n) => steps.is_multiple_of(n),
            Self::Rollouts(n) => before.run_rollouts / n < after.run_rollouts / n,
            Self::Tokens(n) => before.run_tokens / n < after.run_tokens / n,
        }
    }
}
