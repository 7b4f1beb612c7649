//! A run's history: what its record and its times come to, for a report to draw.

use std::collections::BTreeMap;

use allot_allocation::PromptId;
use allot_record::{End, Head, Machine, StepEnd, Swap};

use crate::axis::Costs;
use crate::seen::{PATIENCE, Seen, Trained};

/// What a run came to, as far as its record goes.
#[derive(Clone, Debug)]
pub struct History {
    /// What the run is called on the screen: its folder, as it was given.
    pub run: String,
    /// The record's head.
    pub head: Head,
    /// Where other policies took over.
    pub swaps: Vec<Swap>,
    /// The machines it ran on, one after the other.
    pub machines: Vec<Machine>,
    /// The scores, the one at the start first.
    pub scores: Vec<Score>,
    /// The steps.
    pub steps: Vec<Step>,
    /// What became of all its rollouts.
    pub fates: Fates,
    /// Groups with an advantage, each in each update.
    pub groups: u64,
    /// Its rollouts by verdict, and its groups by their rewards.
    pub seen: Seen,
    /// The end, if the record has it.
    pub end: Option<End>,
    /// Prompts that came on offer.
    pub offers: Offers,
    /// What its plans come to: the same for runs that asked for the same rollouts and trained on the same.
    pub plans: u64,
    /// What its policies measured, by the name of the metric.
    pub measured: BTreeMap<String, Measured>,
    /// What became of its prompts, by their numbers: those that were visited.
    pub prompts: BTreeMap<u32, Lessons>,
    /// What is wrong with the record, in words.
    pub troubles: Vec<String>,
    /// Pilots, commits and truncated ones of a step that has no end.
    pub(crate) open: (u64, u64, u64),
}

/// A metric of a policy, over the calls that gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// How many calls gave it.
    pub calls: u64,
    /// The sum of what they gave.
    pub sum: f64,
    /// What the last one gave.
    pub last: f64,
}

/// What became of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Rollouts of it.
    pub rollouts: u32,
    /// Of them, those that were trained on with an advantage.
    pub learned: u32,
    /// Its first step.
    pub first: Visit,
    /// The last step in which it was sampled, if that is a later one.
    pub again: Option<Visit>,
}

/// A prompt's rollouts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The step.
    pub step: u32,
    /// Rollouts with a verdict.
    pub rollouts: u32,
    /// Of them, the right ones.
    pub right: u32,
}

impl Visit {
    /// The share of right ones.
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

/// How often prompts came on offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// In all.
    pub all: u64,
    /// Of them, those that had been on offer before, in an earlier pass over the data set.
    pub again: u64,
}

/// The held-out accuracy.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Steps finished.
    pub steps: u32,
    /// What the run had cost.
    pub costs: Costs,
    /// Share of right answers.
    pub accuracy: f64,
    /// What it is made of, by name.
    pub parts: Vec<(String, f64)>,
}

/// A step: what the record says at its end, and what follows from its lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The record's line.
    pub end: StepEnd,
    /// What the run had cost after it.
    pub costs: Costs,
    /// Rollouts sampled for prompts that came from the pool.
    pub pilots: u64,
    /// Rollouts sampled for prompts that were buffered.
    pub commits: u64,
    /// Of both, those that met the length limit. Unscorable ones are not known.
    pub truncated: u64,
    /// What became of the rollouts that left the buffer, or never came on it.
    pub fates: Fates,
    /// Rollouts trained on, for the first time or again, by their age in model updates.
    pub ages: Vec<u64>,
    /// Mean reward of the rollouts trained on; [`StepEnd::reward`] is that of all that were sampled.
    pub trained_reward: f64,
}

/// What became of rollouts. Each is counted once: one that was trained on again and again by the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Fates {
    /// Trained on, with an advantage.
    pub learned: u64,
    /// Trained on without an advantage, all of their group being right.
    pub trained_right: u64,
    /// Trained on without an advantage, all of their group being wrong.
    pub trained_wrong: u64,
    /// Trained on without an advantage, for another reason.
    pub trained_equal: u64,
    /// Discarded, all of their group being right.
    pub released_right: u64,
    /// Discarded, all of their group being wrong.
    pub released_wrong: u64,
    /// Discarded from a group in which some were right.
    pub released_mixed: u64,
    /// Stale, though a plan held them.
    pub stale: u64,
    /// Without a verdict.
    pub unscorable: u64,
    /// Buffered when the run ended.
    pub held: u64,
}

/// A rollout whose fate is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// The step it was sampled in.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// Its number, in the record's order.
    pub number: u64,
    /// The prompt.
    pub prompt: PromptId,
    /// Whether its prompt came from the pool for it.
    pub pilot: bool,
    /// Model updates made before it was sampled.
    pub version: u32,
    /// The reward; none where it could not be scored.
    pub reward: Option<f32>,
    /// Whether it was right.
    pub correct: bool,
    /// Length in tokens; none where it could not be scored.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// What became of it: `trained`, `released`, `stale`, `unscorable`, `held`.
    pub fate: &'static str,
    /// The step in which that was known.
    pub settled: u32,
    /// Of one trained on, the model updates between its sampling and the first update on it.
    pub age: Option<u32>,
    /// Of one trained on, in the first update on it.
    pub advantage: Option<f32>,
    /// Updates made on it.
    pub updates: u32,
}

impl History {
    /// Its policy's name, and where others took over: `uniform, pods from step 40`.
    pub fn policy(&self) -> String {
        let later = self.swaps.iter().map(|swap| format!(", {} from step {}", swap.policy.name, swap.step));
        std::iter::once(self.head.policy.name.clone()).chain(later).collect()
    }

    /// Returns why the run has learned nothing, in a sentence; none where it has, or where it is too early to say.
    pub fn nothing_learned(&self) -> Option<String> {
        let over = self.end.as_ref().is_some_and(|end| end.normal);
        let sum = |of: fn(&StepEnd) -> u64| self.steps.iter().map(|step| of(&step.end)).sum();
        let updates = sum(|end| u64::from(end.updated));
        let trained =
            Trained { updates, rollouts: sum(|end| end.trained), effective: sum(|end| end.effective) };
        let due = over || self.steps.len() as u64 >= PATIENCE;
        due.then(|| self.seen.nothing_learned(trained)).flatten()
    }

    /// Pilots, commits and truncated ones among rollouts sampled after the last step.
    pub fn unfinished_step(&self) -> (u64, u64, u64) {
        self.open
    }
}

impl Fates {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.all_mut().into_iter().zip(other.all()) {
            *mine += theirs;
        }
    }

    /// Rollouts in all.
    pub fn total(&self) -> u64 {
        self.all().iter().sum()
    }

    /// Trained on.
    pub fn trained(&self) -> u64 {
        self.learned + self.trained_right + self.trained_wrong + self.trained_equal
    }

    /// Of groups in which all were right.
    pub fn all_right(&self) -> u64 {
        self.trained_right + self.released_right
    }

    /// Of groups in which all were wrong.
    pub fn all_wrong(&self) -> u64 {
        self.trained_wrong + self.released_wrong
    }

    /// Discarded.
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
