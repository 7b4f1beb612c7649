//! What a policy answers.

use serde::{Deserialize, Serialize};

use crate::{PromptId, SamplerSettings};

/// A policy's answer to a view. A request, never a grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What to do next.
    pub action: Action,
    /// Prompts of the pool to pass over until the next epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<PromptId>,
    /// Prompts of the pool to put back: they come on offer again in this epoch, after those that have not been.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defer: Vec<PromptId>,
    /// Prompts never to offer again in this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evict: Vec<PromptId>,
    /// What the policy remembers. Not written with the plan: the record has its own way for bytes.
    #[serde(skip)]
    pub state: Vec<u8>,
    /// Numbers to log, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, f64)>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Sample these, first to last, and ask again.
    Sample(Vec<Request>),
    /// Update the model on this batch. Ends the step.
    Train(Batch),
}

/// Some rollouts of one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The prompt, in the pool or buffered.
    pub prompt: PromptId,
    /// Rollouts to add to the buffered ones. At least 1.
    pub count: u32,
    /// When fewer are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Enough>,
    /// How they are sampled, where that is not as the run samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
}

impl Request {
    /// So many rollouts of a prompt, and nothing else.
    pub fn new(prompt: PromptId, count: u32) -> Self {
        Self { prompt, count, until: None, sampling: None }
    }

    /// The longest that one of its answers can get in a run where answers are at most so long.
    pub fn longest(&self, run: u32) -> u32 {
        self.sampling.map_or(run, |own| own.max_tokens.min(run))
    }
}

/// When a request is answered before its count is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enough {
    /// It ends after the portion by which so many of its rollouts are correct …
    pub correct: u32,
    /// … and so many are wrong.
    pub wrong: u32,
    /// Rollouts in a portion. At least 1, and at least a 256th of the request's count.
    pub portion: u32,
}

impl Enough {
    /// The smallest portion that a request for so many may have.
    pub fn least(count: u32) -> u32 {
        count.div_ceil(256).max(1)
    }
}

/// What to train on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// At most one pick a prompt. None at all means a step without an update.
    pub picks: Vec<Pick>,
    /// What stays buffered. At most one hold a prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<Hold>,
    /// How the update is made; none for the run's own way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Geometry>,
}

/// How a batch is cut into optimizer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Rollouts in each optimizer step. The last step takes what remains, and the largest number makes one step of
    /// any batch. At least 1.
    pub mini_batch: u32,
    /// Passes over the batch. At least 1, and no more than the run's own.
    pub passes: u32,
}

/// The rollouts of one group that stay buffered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Held", into = "Held")]
pub struct Hold {
    /// The prompt.
    pub prompt: PromptId,
    /// Positions in the group's lists, or none for all that are not picked.
    pub rollouts: Option<Vec<u32>>,
}

impl Hold {
    /// For each rollout of a group whether it stays; `picked` says which are picked. One of those stays where it is
    /// held by its position.
    pub fn of(&self, picked: &[bool]) -> Vec<bool> {
        let Some(positions) = &self.rollouts else { return picked.iter().map(|picked| !picked).collect() };
        let mut stays = vec![false; picked.len()];
        for position in positions {
            stays[*position as usize] = true;
        }
        stays
    }
}

/// How a hold is written: where it names no positions, as the prompt alone.
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
    /// All that are not picked.
    fn from(prompt: PromptId) -> Self {
        Self { prompt, rollouts: None }
    }
}

/// The rollouts of one group to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pick {
    /// The prompt.
    pub prompt: PromptId,
    /// Positions in the group's lists, or none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<Vec<u32>>,
    /// How rewards become advantages.
    pub advantage: Advantage,
    /// Scales the advantages. Finite and not negative.
    pub weight: f32,
}

/// How a group's rewards become advantages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advantage {
    /// Measured against the rollouts picked.
    Picked,
    /// Measured against all buffered rollouts of the prompt.
    Group,
    /// Measured against the rollouts at these positions, picked or not.
    Among(Vec<u32>),
    /// The policy's own, one for each rollout picked.
    Given(Vec<f32>),
}

impl Pick {
    /// How many rollouts are picked of a group of `n`.
    pub fn count(&self, n: usize) -> usize {
        self.rollouts.as_ref().map_or(n, Vec::len)
    }

    /// The positions picked of a group of `n`, in order.
    pub fn positions(&self, n: usize) -> Vec<usize> {
        match &self.rollouts {
            Some(positions) => positions.iter().map(|p| *p as usize).collect(),
            None => (0..n).collect(),
        }
    }
}

impl Plan {
    /// A plan of this action and nothing else.
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
