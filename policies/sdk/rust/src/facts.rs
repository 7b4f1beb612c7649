//! What the host knows of the data set's prompts, on offer or not: a list with an entry for each prompt asked about.
//!
//! ```
//! use allot_policy::facts::{self, Count, Measure};
//! # use allot_policy::made;
//! # made::Facts::of(100).visited(7, made::past(1, 8)).column("level", &[2.0; 100]).tell();
//!
//! let visits = facts::counts(Count::Visits, ..); // of all prompts
//! let levels = facts::column("level", 10..20); // of a range
//! let means = facts::measures(Measure::Mean, &[7, 3]); // of these
//! assert_eq!((visits[7], levels.len(), means), (1, 10, vec![0.125, 0.0]));
//! ```
//!
//! To be asked within `decide`. A policy that asks about a prompt that the data set does not have, or for a column
//! that it does not describe, ends the run. Natively the answers are those of [`made::Facts`](crate::made::Facts).

use std::ops::{Range, RangeFull};

#[cfg(target_arch = "wasm32")]
use crate::bindings::rollout::allocation::facts as host;
pub use crate::bindings::rollout::allocation::facts::{Count, Measure, Prompts, TokenCosts};
#[cfg(not(target_arch = "wasm32"))]
use crate::made::host;
use crate::types::PromptId;

/// Counts of past visits. 0 for a prompt without any.
pub fn counts(what: Count, of: impl Into<Prompts>) -> Vec<u32> {
    host::counts(what, &of.into())
}

/// Means of the last visit. 0 for a prompt without any.
pub fn measures(what: Measure, of: impl Into<Prompts>) -> Vec<f32> {
    host::measures(what, &of.into())
}

/// A column that the policy describes, as many numbers for each prompt as `run.columns` says.
pub fn column(name: &str, of: impl Into<Prompts>) -> Vec<f32> {
    host::column(name, &of.into())
}

/// What a token takes.
pub fn costs() -> TokenCosts {
    host::costs()
}

impl From<RangeFull> for Prompts {
    fn from(_: RangeFull) -> Self {
        Self::All
    }
}

impl From<Range<PromptId>> for Prompts {
    fn from(range: Range<PromptId>) -> Self {
        Self::Between((range.start, range.end))
    }
}

impl From<Vec<PromptId>> for Prompts {
    fn from(prompts: Vec<PromptId>) -> Self {
        Self::Listed(prompts)
    }
}

impl From<&[PromptId]> for Prompts {
    fn from(prompts: &[PromptId]) -> Self {
        Self::Listed(prompts.to_vec())
    }
}

impl<const N: usize> From<&[PromptId; N]> for Prompts {
    fn from(prompts: &[PromptId; N]) -> Self {
        Self::Listed(prompts.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    #[test]
    fn answers_are_those_that_were_made() {
        made::Facts::of(4)
            .visited(1, made::past(2, 4))
            .visited(3, made::past(4, 4))
            .column("place", &[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
            .costs(1.0, 2.0, 3.0)
            .tell();
        assert_eq!(counts(Count::Correct, ..), [0, 2, 0, 4]);
        assert_eq!(counts(Count::Streak, 1..4), [0, 0, 1]);
        assert_eq!(measures(Measure::MeanLength, vec![3, 0, 3]), [10.0, 0.0, 10.0]);
        assert_eq!(column("place", &[3, 1]), [3.0, 3.5, 1.0, 1.5], "two numbers for each prompt");
        assert_eq!(costs().learning, 3.0);
    }

    #[test]
    #[should_panic(expected = "asked about prompt `4`, where the made facts have 4 prompts")]
    fn a_prompt_beyond_the_data_set_is_none() {
        made::Facts::of(4).tell();
        counts(Count::Visits, 0..5);
    }

    #[test]
    #[should_panic(expected = "asked for the column `level`, which the made facts don't have")]
    fn a_column_that_was_not_made_is_none() {
        made::Facts::of(4).tell();
        column("level", ..);
    }

    #[test]
    #[should_panic(expected = "made::Facts::of")]
    fn nothing_is_known_before_it_is_made() {
        costs();
    }
}
