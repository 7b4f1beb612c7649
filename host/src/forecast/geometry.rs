//! The geometry of a log: prompts in a step, and rollouts of each.

use std::collections::BTreeMap;

use allot_bank::{Bank, Fit};

/// Prompts in a step, and rollouts of each prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Groups in each update.
    pub groups: u32,
    /// Rollouts of each group.
    pub rollouts: u32,
    /// Where it is from, as words after the rest of a sentence.
    pub from: &'static str,
}

/// Groups in a step of a log that does not say.
const GROUPS: u32 = 16;
/// Rollouts of each group at most, if a log has no steps: evaluations have more than training.
const EACH: usize = 8;
/// The largest group that is forecast: more is taken from the fitted model alone.
const MOST: usize = 64;
/// The most groups of a step that are advised.
const MOST_GROUPS: u32 = 4096;
/// The fewest steps of a simulated run: in fewer, a policy that goes by earlier visits does nothing.
const STEPS: u64 = 5;

impl Geometry {
    /// Returns the medians of a log: rollouts of a prompt at a version, and prompts of a version.
    pub fn of(bank: &Bank) -> Self {
        let (mut sizes, mut prompts) = (Vec::new(), BTreeMap::new());
        for prompt in &bank.prompts {
            let mut here: BTreeMap<u32, usize> = BTreeMap::new();
            for rollout in &prompt.rollouts {
                *here.entry(rollout.version).or_default() += 1;
            }
            for (version, rollouts) in here {
                sizes.push(rollouts);
                *prompts.entry(version).or_insert(0_u32) += 1;
            }
        }
        sizes.sort_unstable();
        let mut groups: Vec<u32> = prompts.into_values().collect();
        groups.sort_unstable();
        let (has_steps, each) = (groups.len() > 1, sizes[sizes.len() / 2]);
        let (groups, most, from) = if has_steps {
            (groups[groups.len() / 2], MOST, ", as in the log")
        } else {
            (GROUPS, EACH, "; the log has no steps")
        };
        let from = if each < 2 { ", which is assumed" } else { from };
        Self { groups, rollouts: each.clamp(2, most) as u32, from }
    }

    /// Returns the geometry that a run of so many rollouts of so many prompts can have.
    pub fn within(self, rollouts: u64, prompts: usize) -> Self {
        let most = (rollouts / (STEPS * u64::from(self.rollouts))).clamp(1, prompts as u64) as u32;
        if self.groups <= most {
            self
        } else {
            Self { groups: most, from: "; with more, there would be too few steps", ..self }
        }
    }

    /// Returns the geometry of as many rollouts in a step, with groups of this size.
    pub fn resized(self, rollouts: u32, prompts: usize) -> Self {
        let groups = (u64::from(self.groups) * u64::from(self.rollouts) / u64::from(rollouts)).max(1);
        Self { groups: groups.min(prompts as u64) as u32, rollouts, ..self }
    }
}

/// Returns the number of groups of this size from which on fewer than one step in twenty has nothing to learn from; none if that
/// takes more than 4,096.
pub fn advised_groups(fit: Fit, rollouts: u32) -> Option<u32> {
    let flat = fit.flat(rollouts);
    let mut nothing = 1.0;
    (1..=MOST_GROUPS).find(|_| {
        nothing *= flat;
        nothing < 0.05
    })
}

#[cfg(test)]
mod tests {
    use allot_bank::Row;

    use super::*;

    #[test]
    fn a_log_with_versions_has_steps_and_one_without_has_none() {
        let row = |key: u32, version| Row { key: key.to_string(), version, ..Row::default() };
        let steps = (0..12).flat_map(|i| (0..5).map(move |_| row(i, Some(i / 4)))).collect();
        let found = Geometry::of(&Bank::of(steps));
        assert_eq!((found.groups, found.rollouts, found.from), (4, 5, ", as in the log"));
        let resized = [(2, 99), (2, 7), (32, 99)].map(|(size, prompts)| found.resized(size, prompts).groups);
        assert_eq!(resized, [10, 7, 1]);
        let within =
            [(100, 99), (50, 99), (100, 3)].map(|(rollouts, prompts)| found.within(rollouts, prompts).groups);
        assert_eq!(within, [4, 2, 3]);
        let none = Geometry::of(&Bank::of((0..30).map(|i| row(i % 3, None)).collect()));
        assert_eq!((none.groups, none.rollouts, none.from), (16, 8, "; the log has no steps"));
    }

    #[test]
    fn fewer_prompts_that_teach_need_larger_steps() {
        let easy = advised_groups(Fit { right: 2.0, wrong: 2.0 }, 4);
        let hard = advised_groups(Fit { right: 0.1, wrong: 5.0 }, 4);
        assert!(easy < Some(5) && hard > Some(30), "{easy:?} {hard:?}");
        assert_eq!(advised_groups(Fit { right: 1e-9, wrong: 1.0 }, 4), None);
        // Of pairs of even odds, half are flat: 0.5^5 < 0.05 < 0.5^4.
        assert_eq!(advised_groups(Fit { right: 1e6, wrong: 1e6 }, 2), Some(5));
    }
}
