//! Counts of a run's outcomes, which explain why nothing was learned, if so. A run counts as it goes on and
//! a report counts from the record, with the same result.

use allot_allocation::{Group, Outcome};
use serde::{Deserialize, Serialize};

/// Steps without learning after which a run is warned about.
pub const PATIENCE: u64 = 10;

/// Rollouts by verdict, and groups by their rewards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Rollouts with a reward.
    scored: u64,
    /// Rollouts without a reward.
    unscorable: u64,
    /// Buffered groups at the end of each step's plan; a group counts in each of these steps.
    groups: u64,
    /// Number of these whose rewards differ.
    mixed: u64,
    /// Number of the others that have one rollout.
    single: u64,
    /// Number of the others with every rollout right.
    right: u64,
    /// Number of the others with every rollout wrong.
    wrong: u64,
}

/// Totals of a run's training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trained {
    /// Number of model updates.
    pub updates: u64,
    /// Number of rollouts trained on.
    pub rollouts: u64,
    /// Number of those with a nonzero advantage.
    pub effective: u64,
}

impl Seen {
    /// Adds new rollouts.
    pub fn outcomes(&mut self, outcomes: &[Outcome]) {
        let scored = outcomes.iter().filter(|outcome| outcome.reward.is_some()).count() as u64;
        self.rollouts(scored, outcomes.len() as u64 - scored);
    }

    /// Adds new rollouts, with and without a reward.
    pub fn rollouts(&mut self, scored: u64, unscorable: u64) {
        self.scored += scored;
        self.unscorable += unscorable;
    }

    /// Adds the groups that were buffered when a plan ended a step.
    pub fn groups<'a>(&mut self, groups: impl IntoIterator<Item = &'a Group>) {
        for group in groups {
            let right = group.correct.iter().filter(|correct| **correct).count();
            self.groups += 1;
            *match right {
                _ if group.rewards.iter().any(|reward| *reward != group.rewards[0]) => &mut self.mixed,
                _ if group.len() == 1 => &mut self.single,
                0 => &mut self.wrong,
                all if all == group.len() => &mut self.right,
                _ => continue,
            } += 1;
        }
    }

    /// Returns a sentence on why a run has learned nothing; `None` if it has learned.
    pub fn nothing_learned(&self, trained: Trained) -> Option<String> {
        let Trained { updates, rollouts, effective } = trained;
        let what = match updates {
            _ if effective > 0 => return None,
            0 => "no update was made".to_owned(),
            1 => "nothing was learned in 1 update".to_owned(),
            _ => format!("nothing was learned in {updates} updates"),
        };
        Some(format!("{what}, because {}", self.why(rollouts)))
    }

    /// Returns why none of the rollouts trained on had an advantage.
    fn why(&self, trained: u64) -> String {
        let Self { scored, unscorable, groups, mixed, single, right, wrong } = *self;
        if scored + unscorable == 0 {
            return "no rollout was sampled: the budget may be too small for one rollout and its update"
                .to_owned();
        }
        if scored == 0 {
            return format!("none of {unscorable} rollouts could be graded");
        }
        if groups == 0 {
            return "the run ended before a plan of the policy trained".to_owned();
        }
        if mixed > 0 {
            let which = if trained == 0 {
                "the policy's plans trained on nothing"
            } else {
                "the policy's plans trained only on rollouts whose advantage, times the weight of the pick, is 0"
            };
            return format!("{which}, though rewards differed in {mixed} of {groups} groups");
        }
        if single == groups {
            return "every group had one rollout, and an advantage is measured against the others of a group"
                .to_owned();
        }
        let equal = groups - single - right - wrong;
        let kinds = [
            (right, "with every rollout right"),
            (wrong, "with every rollout wrong"),
            (single, "of one rollout"),
            (equal, "with equal rewards"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| *n > 0);
        let kinds: Vec<String> = kinds.map(|(n, what)| format!("{n} {what}")).collect();
        format!("every group had zero variance: {}", kinds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allot_allocation::PromptId;

    fn group(rewards: &[f32], correct: &[bool]) -> Group {
        let n = rewards.len();
        Group {
            prompt: PromptId(0),
            epoch: 0,
            rewards: rewards.to_vec(),
            correct: correct.to_vec(),
            tokens: vec![1; n],
            ages: vec![0; n],
            truncated: vec![false; n],
            signals: Vec::new(),
            sampling: Vec::new(),
            trained: Vec::new(),
            turns: allot_allocation::GroupTurns::default(),
        }
    }

    fn seen(groups: &[Group]) -> Seen {
        let mut seen = Seen::default();
        seen.rollouts(groups.iter().map(|group| group.len() as u64).sum(), 0);
        seen.groups(groups);
        seen
    }

    /// Returns the sentence for a run that made no update.
    fn said(seen: &Seen) -> String {
        seen.nothing_learned(Trained::default()).unwrap_or_default()
    }

    #[test]
    fn each_cause_has_its_sentence() {
        let (right, wrong) = (group(&[1.0; 2], &[true; 2]), group(&[0.0; 2], &[false; 2]));
        let (single, mixed) = (group(&[1.0], &[true]), group(&[1.0, 0.0], &[true, false]));
        // Right and wrong, and the same reward.
        let equal = group(&[0.5; 2], &[true, false]);
        let because = |words: &str| format!("no update was made, because {words}");
        let flat = "every group had zero variance: ";
        let cases = [
            (vec![right.clone(), right.clone()], format!("{flat}2 with every rollout right")),
            (vec![wrong.clone()], format!("{flat}1 with every rollout wrong")),
            (
                vec![right, wrong, single.clone(), equal],
                format!(
                    "{flat}1 with every rollout right, 1 with every rollout wrong, 1 of one rollout, 1 with \
                     equal rewards"
                ),
            ),
            (
                vec![single.clone(), single.clone()],
                "every group had one rollout, and an advantage is measured against the others of a group"
                    .to_owned(),
            ),
            (
                vec![single, mixed],
                "the policy's plans trained on nothing, though rewards differed in 1 of 2 groups".to_owned(),
            ),
        ];
        for (groups, words) in cases {
            assert_eq!(said(&seen(&groups)), because(&words));
        }
        let none = "no rollout was sampled: the budget may be too small for one rollout and its update";
        assert_eq!(said(&Seen::default()), because(none));
        let mut unscorable = Seen::default();
        unscorable.rollouts(0, 7);
        assert_eq!(said(&unscorable), because("none of 7 rollouts could be graded"));
        unscorable.rollouts(1, 0);
        assert_eq!(said(&unscorable), because("the run ended before a plan of the policy trained"));
    }

    #[test]
    fn updates_without_an_advantage_teach_nothing() {
        let mixed = seen(&[group(&[1.0, 0.0], &[true, false])]);
        let trained = Trained { updates: 3, rollouts: 6, effective: 0 };
        assert_eq!(
            mixed.nothing_learned(trained).unwrap_or_default(),
            "nothing was learned in 3 updates, because the policy's plans trained only on rollouts whose advantage, \
             times the weight of the pick, is 0, though rewards differed in 1 of 1 groups"
        );
        assert_eq!(mixed.nothing_learned(Trained { effective: 1, ..trained }), None);
    }
}
