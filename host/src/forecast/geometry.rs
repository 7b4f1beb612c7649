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
    /// Whether the log says how many groups a step has, or the user did.
    pub has_steps: bool,
}

/// Groups in a step of a log that does not say.
const GROUPS: u32 = 16;
/// The largest group that is forecast: more is taken from the fitted model alone.
const MOST: usize = 64;
/// The most groups of a step that are advised.
const MOST_GROUPS: u32 = 4096;

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
        let has_steps = groups.len() > 1;
        Self {
            groups: if has_steps { groups[groups.len() / 2].clamp(1, 4096) } else { GROUPS },
            rollouts: sizes[sizes.len() / 2].clamp(2, MOST) as u32,
            has_steps,
        }
    }

    /// Returns the geometry of as many rollouts in a step, with groups of this size.
    pub fn resized(self, rollouts: u32) -> Self {
        let groups = (self.groups * self.rollouts).div_euclid(rollouts).max(1);
        Self { groups, rollouts, ..self }
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
        assert_eq!((found.groups, found.rollouts, found.has_steps), (4, 5, true));
        assert_eq!((found.resized(2).groups, found.resized(32).groups), (10, 1));
        let none = Geometry::of(&Bank::of((0..9).map(|i| row(i, None)).collect()));
        assert_eq!((none.groups, none.rollouts, none.has_steps), (16, 2, false));
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
