//! A row of the table of rollouts.

use std::sync::Arc;

use allot_allocation::{PromptId, RolloutId};
use serde::{Deserialize, Serialize};

/// A rollout as it was sampled and judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutRow {
    /// The step: of an evaluation, the steps done before it.
    pub step: u32,
    /// The round; none in an evaluation.
    pub round: Option<u32>,
    /// Its number in the run, as the buffer counts. The rollouts of an evaluation have numbers of their own,
    /// from 0 in each set, and the buffer does not count them.
    pub rollout: RolloutId,
    /// The prompt's position in its data set.
    pub prompt: PromptId,
    /// The prompt's problem, by its content.
    pub problem: String,
    /// Where the problem comes from.
    pub source: String,
    /// What it was sampled for.
    pub purpose: Purpose,
    /// Its place among the prompt's rollouts at those weights.
    pub position: u32,
    /// The weights: model updates made before it was sampled.
    pub version: u32,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Log-probability at sampling time, in nats, summed over its tokens.
    pub log_prob: Option<f64>,
    /// The reward; none where it could not be scored.
    pub reward: Option<f32>,
    /// The parts that the reward is made of, where a judge gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f32)>,
    /// Whether the answer was right.
    pub correct: bool,
    /// The answer, where it is kept.
    pub text: Option<String>,
    /// The updates made on it so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
}

/// Updates made on a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Model updates between its sampling and the first of these.
    pub age: u32,
    /// How much better it was than its baseline, scaled, in the first of these.
    pub advantage: f32,
    /// How many.
    pub updates: u32,
}

/// What a rollout was sampled for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A look at a prompt that came from the pool.
    Pilot,
    /// More of a prompt that was buffered.
    Commit,
    /// A score on the held-out set of this name.
    Evaluation(String),
}

/// A row whose fate is known.
#[derive(Debug)]
pub(super) struct Settled {
    /// What the run is called.
    pub run: Arc<str>,
    pub row: RolloutRow,
    /// The fate's name in the table.
    pub fate: &'static str,
}
