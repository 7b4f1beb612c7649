//! The input of a policy's decision.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{GroupTurns, History, SamplerSettings};

/// A prompt's index in the data set. It is the same in every run over that data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PromptId(pub u32);

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of the current step: all input for one decision of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Steps finished so far in the run.
    pub step: u32,
    /// Rounds of sampling done so far in this step.
    pub round: u32,
    /// Random bits, fresh for each call.
    pub seed: u32,
    /// The budget that is left.
    pub budget: Budget,
    /// Prompts on offer, in the run's order.
    pub pool: Vec<Prompt>,
    /// Rollout buffer, by prompt: rollouts held from earlier steps first, then those of this step.
    pub groups: Vec<Group>,
    /// Rollouts of this step that could not be scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unscored: Vec<Tally>,
    /// Past visits of every prompt, for policies that query them.
    #[serde(skip)]
    pub history: History,
}

/// A number of rollouts of one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The prompt.
    pub prompt: PromptId,
    /// Number of rollouts. At least 1.
    pub rollouts: u32,
}

/// The budget that is left. The maximum of an integer type means "no limit".
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
    /// Floating-point operations left in the run, minus the cost of training on all buffered rollouts.
    /// `None` if they are not limited, or if the policy's contract does not include them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_flops: Option<f64>,
}

/// A prompt on offer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The prompt.
    pub id: PromptId,
    /// Epochs finished before the one in which the prompt is on offer.
    pub epoch: u32,
    /// The prompt's length, in tokens.
    pub tokens: u32,
    /// The prompt's last visit. `None` before the first visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
}

/// The outcome of a prompt's last visit. A visit is a step in which the prompt was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The step of the visit.
    pub step: u32,
    /// Visits so far, this one included.
    pub visits: u32,
    /// Rollouts sampled in this visit.
    pub rollouts: u32,
    /// How many of `rollouts` were correct.
    pub correct: u32,
    /// Mean reward.
    pub mean: f32,
    /// Population standard deviation of the rewards (divisor n).
    pub deviation: f32,
    /// Mean length, in generated tokens.
    pub tokens: f32,
    /// Number of consecutive visits, ending with this one, in which all rewards were equal and the rollouts
    /// were all correct (or all wrong), as in this visit. 0 if this visit is not of this kind.
    pub streak: u32,
    /// Rollouts in all visits.
    pub total_rollouts: u32,
    /// How many of `total_rollouts` were correct.
    pub total_correct: u32,
}

impl Past {
    /// Returns the sample std of the rewards (divisor n - 1), as used for advantages. 0 for one rollout.
    pub fn std(&self) -> f32 {
        let n = f64::from(self.rollouts);
        if self.rollouts < 2 { 0.0 } else { (f64::from(self.deviation) * (n / (n - 1.0)).sqrt()) as f32 }
    }
}

/// The buffered rollouts of one prompt, in the order they were sampled. All lists run in parallel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The prompt.
    pub prompt: PromptId,
    /// The epoch in which the prompt was on offer.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub epoch: u32,
    /// Rewards. All are finite.
    pub rewards: Vec<f32>,
    /// Whether each answer was correct, whatever else counts towards the reward.
    pub correct: Vec<bool>,
    /// Lengths, in generated tokens.
    pub tokens: Vec<u32>,
    /// Number of model updates since each rollout was sampled.
    pub ages: Vec<u32>,
    /// Whether each rollout reached the length limit.
    pub truncated: Vec<bool>,
    /// One list per signal that the policy requested, in the order of its request.
    pub signals: Vec<Vec<f32>>,
    /// Sampler settings of rollouts that differ from the run's. Empty if no rollout differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampling: Vec<Option<SamplerSettings>>,
    /// Number of updates made on each rollout. Empty if all are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trained: Vec<u32>,
    /// The turns of rollouts that are episodes.
    #[serde(default, skip_serializing_if = "GroupTurns::are_none")]
    pub turns: GroupTurns,
}

impl Group {
    /// Records the sampler settings of the rollout that was pushed to the other lists last.
    pub(crate) fn sampled(&mut self, sampling: Option<SamplerSettings>) {
        if sampling.is_some() || !self.sampling.is_empty() {
            self.sampling.resize(self.len(), None);
            self.sampling[self.rewards.len() - 1] = sampling;
        }
    }

    /// Returns the number of buffered rollouts.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Returns the number of updates made on the rollout at `position`.
    pub fn trained(&self, position: usize) -> u32 {
        self.trained.get(position).copied().unwrap_or(0)
    }

    /// Returns whether the group has no rollouts. Policies are never shown an empty group.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Returns whether all rewards are equal: a zero-variance group. Does not rely on a computed std.
    pub fn flat(&self) -> bool {
        self.rewards.iter().all(|r| *r == self.rewards[0])
    }
}
