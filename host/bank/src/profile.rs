//! Summary statistics of a bank.

use std::ops::RangeInclusive;

use crate::{Bank, Fit, Prompt, Rollout, Unit};

/// Summary statistics of a bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Number of prompts.
    pub prompts: usize,
    /// Number of rollouts of all prompts.
    pub rollouts: usize,
    /// Rollouts per prompt: minimum, median, maximum.
    pub each: [usize; 3],
    /// The mean of the prompts' pass rates.
    pub pass_rate: f64,
    /// Share of prompts that were never right.
    pub never: f64,
    /// Share of prompts that were always right.
    pub always: f64,
    /// The fitted distribution of pass rates.
    pub fit: Fit,
    /// The first and the last version.
    pub versions: RangeInclusive<u32>,
    /// Median lengths of right and of wrong rollouts, in tokens, if known.
    pub lengths: [Option<u32>; 2],
    /// Number of rollouts of unknown length.
    pub no_length: usize,
    /// Number of prompts of unknown length.
    pub no_prompt_length: usize,
    /// Whether rewards differ among right or among wrong rollouts.
    pub graded: bool,
}

impl Profile {
    /// Computes the statistics of a bank with at least one prompt.
    pub fn of(bank: &Bank) -> Self {
        let mut each: Vec<usize> = bank.prompts.iter().map(|prompt| prompt.rollouts.len()).collect();
        each.sort_unstable();
        let share = |is: &dyn Fn(&Prompt) -> bool| {
            bank.prompts.iter().filter(|prompt| is(prompt)).count() as f64 / bank.prompts.len() as f64
        };
        let versions = || bank.all().map(|rollout| rollout.version);
        let length = |right: bool| {
            let own = bank.all().filter(|rollout: &&Rollout| rollout.correct == right);
            let mut lengths: Vec<u32> = own.filter_map(|rollout| rollout.tokens).collect();
            lengths.sort_unstable();
            lengths.get(lengths.len() / 2).copied()
        };
        let rates = bank.prompts.iter().map(Prompt::pass_rate);
        // Whether rewards differ among the right (or wrong) rollouts.
        let kind = |right: bool| {
            let mut own = bank.all().filter(|rollout| rollout.correct == right).map(|rollout| rollout.reward);
            own.next().is_some_and(|first| own.any(|reward| reward != first))
        };
        Self {
            prompts: bank.prompts.len(),
            rollouts: bank.rollouts(),
            each: [each[0], each[each.len() / 2], each[each.len() - 1]],
            pass_rate: rates.sum::<f64>() / bank.prompts.len() as f64,
            never: share(&|prompt| prompt.right() == 0),
            always: share(&|prompt| prompt.right() == prompt.rollouts.len()),
            fit: Fit::of(bank),
            versions: versions().min().unwrap_or(0)..=versions().max().unwrap_or(0),
            lengths: [length(true), length(false)],
            no_length: bank.all().filter(|rollout| rollout.tokens.is_none()).count(),
            no_prompt_length: bank.prompts.iter().filter(|prompt| prompt.tokens.is_none()).count(),
            graded: kind(true) || kind(false),
        }
    }

    /// Returns whether the log tells what is paid in this unit.
    pub fn tells(&self, unit: Unit) -> bool {
        match unit {
            Unit::Rollouts => true,
            Unit::Tokens => self.no_length == 0,
            Unit::Operations => self.no_length == 0 && self.no_prompt_length == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;

    #[test]
    fn a_profile_counts_what_is_there() {
        let row = |key: &str, reward: f32, tokens| Row {
            key: key.to_owned(),
            reward,
            correct: reward > 0.5,
            tokens,
            version: Some(7),
            ..Row::default()
        };
        let rows = vec![
            row("a", 1.0, Some(3)),
            row("a", 1.0, Some(5)),
            row("a", 1.0, None),
            row("b", 0.0, Some(9)),
            row("c", 0.0, Some(9)),
            row("c", 0.8, Some(4)),
        ];
        let profile = Profile::of(&Bank::of(rows));
        assert_eq!((profile.prompts, profile.rollouts, profile.each), (3, 6, [1, 2, 3]));
        assert_eq!((profile.pass_rate, profile.versions, profile.lengths), (0.5, 7..=7, [Some(4), Some(9)]));
        assert!((profile.never - 1.0 / 3.0).abs() < 1e-9 && (profile.always - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((profile.no_length, profile.no_prompt_length, profile.graded), (1, 3, true));
    }
}
