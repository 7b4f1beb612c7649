//! The output of a policy's decision.

use serde::{Deserialize, Serialize};

use crate::{PromptId, SamplerSettings, Start};

/// A policy's answer to a view. It requests; only the ledger grants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The next action.
    pub action: Action,
    /// Prompts of the pool to skip until the next epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<PromptId>,
    /// Prompts of the pool to put back. They come on offer again in this epoch, after all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defer: Vec<PromptId>,
    /// Prompts never to be offered again in this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evict: Vec<PromptId>,
    /// The policy's state after this call. Not serialized with the plan; the record stores it separately.
    #[serde(skip)]
    pub state: Vec<u8>,
    /// Numbers to log, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, f64)>,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Sample these requests in order, then call the policy again.
    Sample(Vec<Request>),
    /// Update the model on this batch. This ends the step.
    Train(Batch),
}

/// A request for rollouts of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The prompt, in the pool or buffered.
    pub prompt: PromptId,
    /// Rollouts to add to the buffered ones. At least 1.
    pub count: u32,
    /// When to stop before `count` is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Enough>,
    /// Sampler settings. `None` means the run's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
    /// What the rollouts continue: an entry for each of `count`, `None` for one that begins with the prompt. Empty
    /// if all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Option<Start>>,
}

impl Request {
    /// Returns a request for `count` rollouts of a prompt, with no other options.
    pub fn new(prompt: PromptId, count: u32) -> Self {
        Self { prompt, count, until: None, sampling: None, starts: Vec::new() }
    }

    /// Returns the length limit of this request's answers, in tokens, in a run with the limit `run`.
    pub fn longest(&self, run: u32) -> u32 {
        self.sampling.map_or(run, |own| own.max_tokens.min(run))
    }

    /// Returns a request for the first `count` of these rollouts.
    pub(crate) fn first(&self, count: u32) -> Self {
        let starts = self.starts.iter().take(count as usize).copied().collect();
        Self { count, starts, ..*self }
    }
}

/// When a request ends before its count is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enough {
    /// The request ends after the first portion by which at least this many rollouts are correct …
    pub correct: u32,
    /// … and at least this many are wrong.
    pub wrong: u32,
    /// Rollouts in a portion. At least 1, and at least a 256th of the request's count.
    pub portion: u32,
}

impl Enough {
    /// Returns the smallest legal portion for a request of `count` rollouts.
    pub fn least(count: u32) -> u32 {
        count.div_ceil(256).max(1)
    }
}

/// The rollouts to train on and to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// At most one pick per prompt. An empty list means a step without an update.
    pub picks: Vec<Pick>,
    /// Rollouts that stay buffered. At most one hold per prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<Hold>,
    /// How the update is made. `None` means as the run's config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Geometry>,
}

/// How a batch is cut into optimizer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Rollouts in each optimizer step. At least 1. The last step takes the rest; `u32::MAX` makes one step
    /// of the whole batch.
    pub mini_batch: u32,
    /// Passes over the batch. At least 1, and at most the number in the run's config.
    pub passes: u32,
}

/// The rollouts of one group that stay buffered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Held", into = "Held")]
pub struct Hold {
    /// The prompt.
    pub prompt: PromptId,
    /// Positions in the group's lists. `None` means all rollouts that are not picked.
    pub rollouts: Option<Vec<u32>>,
}

impl Hold {
    /// Returns for each rollout of a group whether it stays buffered. `picked` marks the picked rollouts; a
    /// picked rollout stays only if the hold names its position.
    pub fn of(&self, picked: &[bool]) -> Vec<bool> {
        let Some(positions) = &self.rollouts else { return picked.iter().map(|picked| !picked).collect() };
        let mut stays = vec![false; picked.len()];
        for position in positions {
            stays[*position as usize] = true;
        }
        stays
    }
}

/// Serialized form of a hold. A hold without positions is written as the prompt alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Held {
    All(PromptId),
    Some { prompt: PromptId, rollouts: Vec<u32> },
}

impl From<Held> for Hold {
    fn from(held: Held) -> Self {
        match held {
            Held::All(prompt) => prompt.into(),
            Held::Some { prompt, rollouts } => Self { prompt, rollouts: Some(rollouts) },
        }
    }
}

impl From<Hold> for Held {
    fn from(Hold { prompt, rollouts }: Hold) -> Self {
        rollouts.map_or(Self::All(prompt), |rollouts| Self::Some { prompt, rollouts })
    }
}

impl From<PromptId> for Hold {
    /// Holds all rollouts that are not picked.
    fn from(prompt: PromptId) -> Self {
        Self { prompt, rollouts: None }
    }
}

/// The rollouts of one group to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pick {
    /// The prompt.
    pub prompt: PromptId,
    /// Positions in the group's lists. `None` means all rollouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<Vec<u32>>,
    /// How rewards become advantages.
    pub advantage: Advantage,
    /// Factor on the advantages. Finite and not negative.
    pub weight: f32,
}

/// How a group's rewards become advantages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advantage {
    /// Relative to the picked rollouts.
    Picked,
    /// Relative to all buffered rollouts of the prompt.
    Group,
    /// Relative to the rollouts at these positions, picked or not.
    Among(Vec<u32>),
    /// Advantages computed by the policy, one for each picked rollout.
    Given(Vec<f32>),
    /// Advantages computed by the policy, one for each turn of each picked rollout.
    #[serde(rename = "by_turn")]
    ByTurn(Vec<Vec<f32>>),
}

impl Pick {
    /// Returns the number of rollouts picked from a group of `n`.
    pub fn count(&self, n: usize) -> usize {
        self.rollouts.as_ref().map_or(n, Vec::len)
    }

    /// Returns the positions picked from a group of `n`, in order.
    pub fn positions(&self, n: usize) -> Vec<usize> {
        match &self.rollouts {
            Some(positions) => positions.iter().map(|p| *p as usize).collect(),
            None => (0..n).collect(),
        }
    }
}

impl Plan {
    /// Returns a plan with this action and nothing else.
    pub fn of(action: Action) -> Self {
        Self {
            action,
            skip: Vec::new(),
            defer: Vec::new(),
            evict: Vec::new(),
            state: Vec::new(),
            metrics: Vec::new(),
        }
    }
}
