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
    /// After each step in which the run's rollouts pass one of these places: the first is at `least`, and the next
    /// one always so many thousandths further, but `least` at the least. They are those of every run, whatever its
    /// policy does, and denser where curves are steep: a cost is known to the same share of it everywhere.
    Growing {
        /// Rollouts between two scores, at the least.
        least: u64,
        /// By how many thousandths a place lies beyond the one before it.
        thousandths: u32,
    },
}

impl Every {
    /// Whether it is due after so many steps, between these two states of the ledger.
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
