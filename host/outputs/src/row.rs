//! A row of the table of rollouts.

use std::sync::Arc;

use allot_allocation::{PromptId, RolloutId};
use serde::{Deserialize, Serialize};

/// A rollout, as sampled and graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutRow {
    /// The step; for an evaluation, the number of steps done before it.
    pub step: u32,
    /// The round; `None` in an evaluation.
    pub round: Option<u32>,
    /// Its number in the run, as in the buffer. An evaluation numbers its rollouts from 0 in each set, and
    /// the buffer does not count them.
    pub rollout: RolloutId,
    /// The prompt's position in its data set.
    pub prompt: PromptId,
    /// Identifier of the prompt's problem, derived from its content.
    pub problem: String,
    /// Source of the problem.
    pub source: String,
    /// Purpose of the rollout.
    pub purpose: Purpose,
    /// Its index among the prompt's rollouts at the same version.
    pub position: u32,
    /// Version of the weights: the number of model updates before it was sampled.
    pub version: u32,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Log-probability at sampling time, in nats, summed over its tokens.
    pub log_prob: Option<f64>,
    /// The reward; `None` if it could not be scored.
    pub reward: Option<f32>,
    /// Named parts of the reward, if a grader gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f32)>,
    /// Whether the answer was right.
    pub correct: bool,
    /// Its turns, if it is an episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub played: Option<Played>,
    /// The answer, if it is kept. Of an episode, what was said in all turns.
    pub text: Option<String>,
    /// The updates made on it so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
}

/// The turns of an episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// Number of turns of the model.
    pub turns: u32,
    /// Tokens read from the environment.
    pub read: u32,
    /// Number of training rows.
    #[serde(default = "one")]
    pub rows: u32,
    /// Why it stopped.
    pub stopped: String,
}

fn one() -> u32 {
    1
}

/// Updates made on a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Model updates between its sampling and the first update on it.
    pub age: u32,
    /// Its advantage in the first update on it: reward minus baseline, scaled.
    pub advantage: f32,
    /// Number of updates.
    pub updates: u32,
}

/// Purpose of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// To inspect a prompt that came from the pool.
    Pilot,
    /// To add to a prompt that was buffered.
    Commit,
    /// To evaluate on the held-out set of this name.
    Evaluation(String),
}

/// A row whose fate is known.
#[derive(Debug)]
pub(super) struct Settled {
    /// Name of the run.
    pub run: Arc<str>,
    pub row: RolloutRow,
    /// The fate's name in the table.
    pub fate: &'static str,
}
