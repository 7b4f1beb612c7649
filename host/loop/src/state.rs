//! The state of the loop between two calls. Checkpoints store it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;

use allot_allocation::{Batch, Compute, Ledger, Pool, Portions, PromptId, RolloutBuffer, RolloutId, Spent};
use allot_record::StepEnd;
use serde::{Deserialize, Serialize};

use crate::{Measured, Pending, Scores};

/// The state of a run's loop.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// The policy's state.
    #[serde(with = "hexadecimal")]
    pub policy: Vec<u8>,
    /// Size in the record of all changes of the policy's state, in bytes, as counted against its limit.
    pub written: u64,
    /// The prompts on offer.
    pub pool: Pool,
    /// The buffered rollouts, as the policy sees them.
    #[serde(rename = "shelf")] // as checkpoints have it since their first format
    pub buffer: RolloutBuffer,
    /// The limits, and the amounts spent.
    #[serde(rename = "books")]
    pub ledger: Ledger,
    /// Compute and seconds spent.
    pub measured: Measured,
    /// Number of decided steps. Those in `pending` are not finished yet.
    pub steps: u32,
    /// Decided steps that wait for their updates, oldest first. Empty in a run without a lag.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub pending: VecDeque<Pending>,
    /// In a run with a lag: the amounts spent and computed up to the end of the last finished step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(Spent, Compute)>,
    /// Model updates made.
    pub version: u32,
    /// The reason why the run ends after the current step, or has ended.
    pub ending: Option<Reason>,
    /// The last evaluation, with the number of steps finished before it.
    pub scored: Option<(u32, Scores)>,
    /// The position of the run in its step.
    pub at: At,
}

impl State {
    /// Returns the state of a run before its first step.
    pub fn new(policy: Vec<u8>, pool: Pool, buffer: RolloutBuffer, ledger: Ledger) -> Self {
        Self {
            policy,
            written: 0,
            pool,
            buffer,
            ledger,
            measured: Measured::default(),
            steps: 0,
            pending: VecDeque::new(),
            last: None,
            version: 0,
            ending: None,
            scored: None,
            at: At::Between,
        }
    }

    /// Returns the number of finished steps: their updates are made, and they are in the record.
    pub fn finished(&self) -> u32 {
        self.steps - self.pending.len() as u32
    }

    /// Returns the amounts spent and computed by the end of the last finished step. Call it between steps.
    pub fn costs(&self) -> (Spent, Compute) {
        self.last.unwrap_or((self.ledger.spent(), self.measured.compute))
    }

    /// Returns the rollouts that are buffered or belong to a pending update.
    pub fn in_use(&self) -> HashSet<RolloutId> {
        let learned = self.pending.iter().flat_map(|pending| &pending.update.rollouts);
        learned.map(|learned| learned.id).chain(self.buffer.ids()).collect()
    }

    /// Returns the current step and round. The plans of all calls before it are known.
    pub fn call(&self) -> (u32, u32) {
        let round = match &self.at {
            At::Asking(step) => step.round,
            // This round's call was made.
            At::Sampling(step) => step.round + 1,
            At::Updating(..) => u32::MAX,
            At::Between | At::Evaluating(_) | At::Ended(_) | At::Closing | At::Over => 0,
        };
        (self.steps, round)
    }
}

/// The position of a run in its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum At {
    /// Between two steps, or before the first.
    Between,
    /// The policy is asked for a plan.
    Asking(Step),
    /// The ledger's open grant is being sampled and graded.
    Sampling(Step),
    /// The model is being updated.
    Updating(Step, Update),
    /// The step is over, and the model is being evaluated.
    Evaluating(Box<StepEnd>),
    /// The step is over and not yet reported.
    Ended(Box<StepEnd>),
    /// All steps are over, and the model is being evaluated for the last time.
    Closing,
    /// The run is over.
    Over,
}

/// The progress of the current step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The round.
    pub round: u32,
    /// Whether the last plan requested rollouts and was granted none.
    pub dry: bool,
    /// The unfinished requests of the current plan.
    #[serde(default, skip_serializing_if = "Portions::are_none")]
    pub portions: Portions,
    /// The amounts spent before the step began.
    pub before: Spent,
    /// Mean reward of the step's rollouts.
    pub rewards: Mean,
    /// Means of the reward components, by name.
    pub parts: BTreeMap<String, Mean>,
}

/// A batch to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The batch, as picked by the policy.
    pub batch: Batch,
    /// The batch's rollouts, in order.
    pub rollouts: Vec<Learned>,
}

/// A rollout to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// The rollout's number.
    pub id: RolloutId,
    /// The rollout's prompt.
    pub prompt: PromptId,
    /// Model updates made since it was sampled.
    pub age: u32,
    /// The rollout's advantage: the mean over its turns, if they have their own.
    pub advantage: f32,
    /// The advantage of each turn. Empty if all have the rollout's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_turn: Vec<f32>,
}

impl Learned {
    /// Returns whether an advantage is not 0.
    pub fn is_effective(&self) -> bool {
        self.advantage != 0.0 || self.by_turn.iter().any(|a| *a != 0.0)
    }
}

/// The reason for a normal end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// All steps are done.
    Steps,
    /// The budget is spent.
    Budget,
    /// Every prompt was evicted.
    Evicted,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steps => "all steps are done",
            Self::Budget => "the budget is spent",
            Self::Evicted => "every prompt is evicted",
        })
    }
}

/// A running mean. 0 if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    /// Adds a number.
    pub fn add(&mut self, x: f64) {
        self.sum += x;
        self.n += 1;
    }

    /// Returns the mean of all numbers added.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum / self.n as f64 }
    }
}

/// Serializes bytes as hexadecimal text, as in a record.
mod hexadecimal {
    use allot_record::{hex, unhex};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        unhex(&text).ok_or_else(|| D::Error::custom("a state is in hexadecimal"))
    }
}
