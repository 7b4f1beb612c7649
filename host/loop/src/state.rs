//! What lives on from one call of the loop to the next: what a checkpoint keeps.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;

use allot_allocation::{Batch, Compute, Ledger, Pool, Portions, PromptId, RolloutBuffer, RolloutId, Spent};
use allot_record::StepEnd;
use serde::{Deserialize, Serialize};

use crate::{Measured, Pending, Scores};

/// The state of a run's loop.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// What the policy remembers.
    #[serde(with = "hexadecimal")]
    pub policy: Vec<u8>,
    /// Bytes that the record has of changes of this state, as its bound counts them.
    pub written: u64,
    /// The prompts on offer.
    pub pool: Pool,
    /// The buffered rollouts, as the policy sees them.
    #[serde(rename = "shelf")] // as checkpoints have it since their first format
    pub buffer: RolloutBuffer,
    /// What may be spent, and what was.
    #[serde(rename = "books")]
    pub ledger: Ledger,
    /// What was computed, and how long it took.
    pub measured: Measured,
    /// Steps that are decided. All but those that wait for their updates are finished.
    pub steps: u32,
    /// Steps that are decided and wait for their updates, the first one first. Empty in a run without a lag.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub pending: VecDeque<Pending>,
    /// What the last finished step came to, in a run with a lag: what was sampled since is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(Spent, Compute)>,
    /// Model updates made.
    pub version: u32,
    /// Why the run ends with the step at hand, or has ended.
    pub ending: Option<Reason>,
    /// The last evaluation, and the steps finished by then.
    pub scored: Option<(u32, Scores)>,
    /// Whose turn it is.
    pub at: At,
}

impl State {
    /// The state of a run before its first step.
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

    /// Steps that are finished: their updates are made, and they are in the record.
    pub fn finished(&self) -> u32 {
        self.steps - self.pending.len() as u32
    }

    /// What was spent and computed by the end of the last finished step, where none is at hand.
    pub fn costs(&self) -> (Spent, Compute) {
        self.last.unwrap_or((self.ledger.spent(), self.measured.compute))
    }

    /// Rollouts that are buffered, or on which an update is still to be made.
    pub fn in_use(&self) -> HashSet<RolloutId> {
        let learned = self.pending.iter().flat_map(|pending| &pending.update.rollouts);
        learned.map(|learned| learned.id).chain(self.buffer.ids()).collect()
    }

    /// The step and the round at hand: of all calls before it the plans are known.
    pub fn call(&self) -> (u32, u32) {
        let round = match &self.at {
            At::Asking(step) => step.round,
            // The call of this round is made.
            At::Sampling(step) => step.round + 1,
            At::Updating(..) => u32::MAX,
            At::Between | At::Evaluating(_) | At::Ended(_) | At::Closing | At::Over => 0,
        };
        (self.steps, round)
    }
}

/// Where a run is in its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum At {
    /// Between two steps, or before the first.
    Between,
    /// It is the policy's turn.
    Asking(Step),
    /// The ledger's open grant is being sampled and judged.
    Sampling(Step),
    /// The model is being updated.
    Updating(Step, Update),
    /// The step is over, and the model is being evaluated.
    Evaluating(Box<StepEnd>),
    /// The step is over and not yet reported.
    Ended(Box<StepEnd>),
    /// Nothing more is done, and the model is being evaluated for the last time.
    Closing,
    /// The run is over.
    Over,
}

/// What a step has come to so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The round.
    pub round: u32,
    /// Whether the budget gave nothing of the last thing asked for.
    pub dry: bool,
    /// What is left of the plan that is being carried out, where it is in portions.
    #[serde(default, skip_serializing_if = "Portions::are_none")]
    pub portions: Portions,
    /// What was spent when the step began.
    pub before: Spent,
    /// Of its rollouts' rewards.
    pub rewards: Mean,
    /// Of the parts of those rewards, by name.
    pub parts: BTreeMap<String, Mean>,
}

/// A batch to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// As the policy picked it.
    pub batch: Batch,
    /// Its rollouts, in order.
    pub rollouts: Vec<Learned>,
}

/// A rollout that is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Its number.
    pub id: RolloutId,
    /// Its prompt.
    pub prompt: PromptId,
    /// Model updates made since it was sampled.
    pub age: u32,
    /// Its advantage.
    pub advantage: f32,
}

/// Why a run ends normally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// All its steps are done.
    Steps,
    /// Its budget is spent.
    Budget,
    /// No prompt will come on offer again.
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

/// A mean that is filled one by one; 0 of nothing.
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

    /// The mean of those added.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum / self.n as f64 }
    }
}

/// Bytes as text, as a record has them.
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
