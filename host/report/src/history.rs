//! A run's history: the content of its record and times, as a report uses it.

use std::collections::BTreeMap;

use allot_allocation::PromptId;
use allot_record::{End, Head, Machine, StepEnd, Swap};

use crate::axis::Costs;
use crate::seen::{PATIENCE, Seen, Trained};

/// The history of a run, as far as its record goes.
#[derive(Clone, Debug)]
pub struct History {
    /// Name of the run for display: its folder, as given.
    pub run: String,
    /// By what looks know it: its seed or, in a comparison of finished runs, a number of its own.
    pub id: u64,
    /// The record's head.
    pub head: Head,
    /// Changes of the policy.
    pub swaps: Vec<Swap>,
    /// The machines it ran on, in order.
    pub machines: Vec<Machine>,
    /// The evaluations, the one at the start first.
    pub scores: Vec<Score>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Fates of all its rollouts.
    pub fates: Fates,
    /// Groups with a nonzero advantage, counted once in each update.
    pub groups: u64,
    /// Its rollouts by verdict, and its groups by reward.
    pub seen: Seen,
    /// The end, if it is in the record.
    pub end: Option<End>,
    /// Counts of prompts offered.
    pub offers: Offers,
    /// Hash of its plans: equal for runs that sampled and trained on the same rollouts.
    pub plans: u64,
    /// Metrics of its policies, by name.
    pub measured: BTreeMap<String, Measured>,
    /// Statistics of the prompts that were visited, by their numbers.
    pub prompts: BTreeMap<u32, Lessons>,
    /// The different warnings that its policies logged.
    pub warned: Vec<String>,
    /// Errors in the record, in words.
    pub troubles: Vec<String>,
    /// Pilots, commits and truncated rollouts of a step without an end.
    pub(crate) open: (u64, u64, u64),
}

/// A metric of a policy, over the calls that reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Number of calls that reported it.
    pub calls: u64,
    /// Sum of its values.
    pub sum: f64,
    /// Its last value.
    pub last: f64,
}

/// Statistics of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Number of its rollouts.
    pub rollouts: u32,
    /// Number of those that were trained on with an advantage.
    pub learned: u32,
    /// The first step in which it was sampled.
    pub first: Visit,
    /// The last step in which it was sampled, if it is a later one.
    pub again: Option<Visit>,
}

/// The rollouts of a prompt in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The step.
    pub step: u32,
    /// Number of rollouts with a verdict.
    pub rollouts: u32,
    /// Number of right ones.
    pub right: u32,
}

impl Visit {
    /// Returns the share of right ones.
    pub fn rate(self) -> f64 {
        f64::from(self.right) / f64::from(self.rollouts.max(1))
    }
}

impl Lessons {
    /// Adds rollouts of a step.
    pub(crate) fn add(&mut self, step: u32, rollouts: u32, right: u32) {
        let visit = match &mut self.again {
            _ if self.rollouts == 0 => {
                self.first.step = step;
                &mut self.first
            }
            _ if self.first.step == step => &mut self.first,
            Some(last) if last.step == step => last,
            again => again.insert(Visit { step, ..Visit::default() }),
        };
        visit.rollouts += rollouts;
        visit.right += right;
        self.rollouts += rollouts;
    }
}

/// Counts of prompts offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// All offers.
    pub all: u64,
    /// Offers of prompts that were offered before, in an earlier epoch.
    pub again: u64,
}

/// An evaluation: the held-out accuracy.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Steps finished.
    pub steps: u32,
    /// Costs of the run so far.
    pub costs: Costs,
    /// Share of right answers.
    pub accuracy: f64,
    /// Its parts, by name.
    pub parts: Vec<(String, f64)>,
}

/// A step: its line in the record, and statistics of its other lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The line in the record.
    pub end: StepEnd,
    /// Costs of the run after this step.
    pub costs: Costs,
    /// Rollouts sampled for prompts that came from the pool.
    pub pilots: u64,
    /// Rollouts sampled for prompts that were buffered.
    pub commits: u64,
    /// Number of these that reached the length limit. Unscorable rollouts are not included.
    pub truncated: u64,
    /// Fates of the rollouts that left the buffer or never entered it.
    pub fates: Fates,
    /// Number of rollouts trained on, for the first time or again, by age in model updates.
    pub ages: Vec<u64>,
    /// Mean reward of the rollouts trained on. [`StepEnd::reward`] is that of all rollouts sampled.
    pub trained_reward: f64,
}

/// Fates of rollouts. Each rollout counts once; if trained on several times, its first training counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Fates {
    /// Trained on, with an advantage.
    pub learned: u64,
    /// Trained on without an advantage, in a group with every rollout right.
    pub trained_right: u64,
    /// Trained on without an advantage, in a group with every rollout wrong.
    pub trained_wrong: u64,
    /// Trained on without an advantage, for another reason.
    pub trained_equal: u64,
    /// Discarded, in a group with every rollout right.
    pub released_right: u64,
    /// Discarded, in a group with every rollout wrong.
    pub released_wrong: u64,
    /// Discarded, in a group with right and wrong rollouts.
    pub released_mixed: u64,
    /// Discarded as stale, although a plan held them.
    pub stale: u64,
    /// Without a verdict.
    pub unscorable: u64,
    /// Buffered when the run ended.
    pub held: u64,
}

/// A rollout whose fate is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// The step in which it was sampled.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// Its number, in the record's order.
    pub number: u64,
    /// The prompt.
    pub prompt: PromptId,
    /// Whether its prompt came from the pool for this rollout.
    pub pilot: bool,
    /// Model updates made before it was sampled.
    pub version: u32,
    /// The reward; `None` if it could not be scored.
    pub reward: Option<f32>,
    /// Whether it was right.
    pub correct: bool,
    /// Length in tokens; `None` if it could not be scored.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Its fate: `trained`, `released`, `stale`, `unscorable` or `held`.
    pub fate: &'static str,
    /// The step in which its fate was known.
    pub settled: u32,
    /// If trained on, the model updates between its sampling and the first update on it.
    pub age: Option<u32>,
    /// If trained on, its advantage in the first update on it.
    pub advantage: Option<f32>,
    /// Number of updates on it.
    pub updates: u32,
}

impl History {
    /// Returns its policy's name, and later policies with their first steps: `uniform, pods from step 40`.
    pub fn policy(&self) -> String {
        let later = self.swaps.iter().map(|swap| format!(", {} from step {}", swap.policy.name, swap.step));
        std::iter::once(self.head.policy.name.clone()).chain(later).collect()
    }

    /// Returns a sentence on why the run has learned nothing; `None` if it has learned, or it is too early.
    pub fn nothing_learned(&self) -> Option<String> {
        let over = self.end.as_ref().is_some_and(|end| end.normal);
        let sum = |of: fn(&StepEnd) -> u64| self.steps.iter().map(|step| of(&step.end)).sum();
        let updates = sum(|end| u64::from(end.updated));
        let trained =
            Trained { updates, rollouts: sum(|end| end.trained), effective: sum(|end| end.effective) };
        let due = over || self.steps.len() as u64 >= PATIENCE;
        due.then(|| self.seen.nothing_learned(trained)).flatten()
    }

    /// Returns the pilots, commits and truncated rollouts sampled after the last step.
    pub fn unfinished_step(&self) -> (u64, u64, u64) {
        self.open
    }
}

impl Fates {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.all_mut().into_iter().zip(other.all()) {
            *mine += theirs;
        }
    }

    /// Number of all rollouts.
    pub fn total(&self) -> u64 {
        self.all().iter().sum()
    }

    /// Number of rollouts trained on.
    pub fn trained(&self) -> u64 {
        self.learned + self.trained_right + self.trained_wrong + self.trained_equal
    }

    /// Number of rollouts in groups with every rollout right.
    pub fn all_right(&self) -> u64 {
        self.trained_right + self.released_right
    }

    /// Number of rollouts in groups with every rollout wrong.
    pub fn all_wrong(&self) -> u64 {
        self.trained_wrong + self.released_wrong
    }

    /// Number of rollouts discarded.
    pub fn released(&self) -> u64 {
        self.released_right + self.released_wrong + self.released_mixed
    }

    fn all(&self) -> [u64; 10] {
        let mut copy = *self;
        copy.all_mut().map(|n| *n)
    }

    fn all_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.learned,
            &mut self.trained_right,
            &mut self.trained_wrong,
            &mut self.trained_equal,
            &mut self.released_right,
            &mut self.released_wrong,
            &mut self.released_mixed,
            &mut self.stale,
            &mut self.unscorable,
            &mut self.held,
        ]
    }
}
