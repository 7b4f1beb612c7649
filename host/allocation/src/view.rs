//! What a policy sees before it decides.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{History, SamplerSettings};

/// A prompt's position in the data set: the same in every run over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PromptId(pub u32);

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The step so far: all that a decision may rest on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Steps finished so far in the run.
    pub step: u32,
    /// Rounds of sampling done so far in this step.
    pub round: u32,
    /// Random bits, fresh for each call.
    pub seed: u32,
    /// What is left to spend.
    pub budget: Budget,
    /// Prompts on offer, in the run's order.
    pub pool: Vec<Prompt>,
    /// Buffered rollouts, by prompt: those held from earlier steps, then those of this step.
    pub groups: Vec<Group>,
    /// Rollouts of this step that could not be scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<Tally>,
    /// What is told of past visits where the policy asks for it.
    #[serde(skip)]
    pub history: History,
}

/// Some rollouts of one prompt, by number alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The prompt.
    pub prompt: PromptId,
    /// How many. At least 1.
    pub rollouts: u32,
}

/// What is left to spend. The largest value of a type stands for "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Rounds of sampling in this step.
    pub rounds: u32,
    /// Rollouts in this step.
    pub step_rollouts: u32,
    /// Rollouts in the run.
    pub run_rollouts: u32,
    /// Generated tokens in the run.
    pub run_tokens: u64,
    /// Operations in the run, less those of learning from all that is buffered; none where they are not limited, or
    /// the policy's contract does not tell of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_flops: Option<f64>,
}

/// A prompt on offer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The prompt.
    pub id: PromptId,
    /// Passes over the data set finished before this one.
    pub epoch: u32,
    /// The prompt's own length, in tokens.
    pub tokens: u32,
    /// Its last visit, or none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
}

/// The outcome of a prompt's last visit: a step in which it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The step it was in.
    pub step: u32,
    /// Visits so far, this one included.
    pub visits: u32,
    /// Rollouts sampled in it.
    pub rollouts: u32,
    /// How many of them were correct.
    pub correct: u32,
    /// Mean reward.
    pub mean: f32,
    /// Standard deviation of the rewards, divided by n.
    pub deviation: f32,
    /// Mean length, in generated tokens.
    pub tokens: f32,
    /// Visits in a row, ending with this one, with all rewards equal and all rollouts correct as
    /// in this visit, or none. 0 if this visit's rewards differ.
    pub streak: u32,
    /// Rollouts in all visits together.
    pub total_rollouts: u32,
    /// How many of those were correct.
    pub total_correct: u32,
}

impl Past {
    /// Standard deviation of the rewards, of the sample: divided by n - 1, as in advantages. 0 of one rollout.
    pub fn std(&self) -> f32 {
        let n = f64::from(self.rollouts);
        if self.rollouts < 2 { 0.0 } else { (f64::from(self.deviation) * (n / (n - 1.0)).sqrt()) as f32 }
    }
}

/// The buffered rollouts for one prompt, in the order they were sampled. The lists run in parallel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The prompt.
    pub prompt: PromptId,
    /// The epoch in which it was on offer.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub epoch: u32,
    /// Rewards. Finite.
    pub rewards: Vec<f32>,
    /// Whether the answer was right, whatever else the reward counts.
    pub correct: Vec<bool>,
    /// Lengths, in generated tokens.
    pub tokens: Vec<u32>,
    /// Model updates made since each rollout was sampled.
    pub ages: Vec<u32>,
    /// Whether the rollout met the length limit.
    pub truncated: Vec<bool>,
    /// A list for each signal that the policy asked for, in that order.
    pub signals: Vec<Vec<f32>>,
    /// How each was sampled, where that is not as the run samples; empty where that is so of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampling: Vec<Option<SamplerSettings>>,
    /// Updates that were made on each; empty where none was made on any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trained: Vec<u32>,
}

impl Group {
    /// The rollout that was put into the other lists last was sampled so.
    pub(crate) fn sampled(&mut self, sampling: Option<SamplerSettings>) {
        if sampling.is_some() || !self.sampling.is_empty() {
            self.sampling.resize(self.len(), None);
            self.sampling[self.rewards.len() - 1] = sampling;
        }
    }

    /// Buffered rollouts.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Updates that were made on a rollout.
    pub fn trained(&self, position: usize) -> u32 {
        self.trained.get(position).copied().unwrap_or(0)
    }

    /// Whether there are none. Such a group is never shown.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Whether all rewards are one and the same: `max == min`, never `std > 0`.
    pub fn flat(&self) -> bool {
        self.rewards.iter().all(|r| *r == self.rewards[0])
    }
}
