//! The interval between evaluations, in steps, rollouts or tokens.

use crate::Spent;

/// When a run evaluates. Every run also evaluates at its start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After every `n` steps.
    Steps(u32),
    /// After each step in which the run's rollouts pass a multiple of this number.
    Rollouts(u64),
    /// After each step in which the run's generated tokens pass a multiple of this number.
    Tokens(u64),
    /// After each step in which the run's rollouts pass one of a fixed series of marks. The first mark is
    /// `least`; each interval is `thousandths` / 1000 of the last mark, but at least `least`. The marks are
    /// the same for every policy and denser early, where curves are steep, so costs are equally precise.
    Growing {
        /// The smallest interval between two marks, in rollouts.
        least: u64,
        /// The interval to the next mark, in thousandths of the last mark.
        thousandths: u32,
    },
}

impl Every {
    /// Returns whether an evaluation is due after `steps` steps. `before` and `after` are of the last step.
    pub fn due(self, steps: u32, before: Spent, after: Spent) -> bool {
        match self {
            Self::Steps(n) => steps.is_multiple_of(n),
            Self::Rollouts(n) => before.run_rollouts / n < after.run_rollouts / n,
            Self::Tokens(n) => before.run_tokens / n < after.run_tokens / n,
            Self::Growing { least, thousandths } => {
                let mut place = 0;
                while place <= before.run_rollouts {
                    place += least.max(place / 1000 * u64::from(thousandths)).max(1);
                }
                place <= after.run_rollouts
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_for_steps_of_any_size_and_grow_apart() {
        let every = Every::Growing { least: 250, thousandths: 50 };
        let spent = |run_rollouts| Spent { run_rollouts, ..Spent::default() };
        let scored = |step: u64| -> Vec<u64> {
            (0..40_000 / step)
                .map(|i| (i * step, (i + 1) * step))
                .filter(|(before, after)| every.due(1, spent(*before), spent(*after)))
                .map(|(_, after)| after)
                .collect()
        };
        let exact = scored(1);
        assert_eq!(exact[..3], [250, 500, 750]);
        assert!(exact.windows(2).all(|two| two[1] - two[0] >= 250));
        let last = &exact[exact.len() - 2..];
        assert!(last[1] - last[0] > 1000 && last[1] - last[0] < 2000, "{last:?}");
        // A longer step is scored once for each place that it passes, at its own end.
        let coarse: std::collections::BTreeSet<u64> =
            exact.iter().map(|place| place.div_ceil(64) * 64).collect();
        assert_eq!(scored(64), coarse.into_iter().filter(|place| *place <= 40_000).collect::<Vec<_>>());
    }
}
