//! Episodes: rollouts of several turns between the model and an environment.
//!
//! An environment says something after each turn, or ends the episode with a reward. It never sees tokens of
//! other episodes, and nothing that it does costs more than its own rollout: a failure or a text that is too
//! long ends the episode for a reason that is recorded, and a reply to an earlier turn is ignored.

use std::time::Duration;

use allot_allocation::PromptId;
use serde::{Deserialize, Serialize};

/// Limits of an episode besides its generated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeLimits {
    /// Turns of the model. At least 1.
    pub turns: u32,
    /// Tokens read from the environment.
    pub read: u32,
    /// Time until an environment must have replied. None for an environment that always replies.
    pub reply: Option<Duration>,
    /// Time from the end of the first turn after which no further turn begins. Not repeatable.
    pub whole: Option<Duration>,
}

/// An episode that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its number among the episodes that are sampled together.
    pub number: usize,
    /// The prompt.
    pub prompt: PromptId,
    /// The seed of the environment's start, equal for all rollouts of a group.
    pub start: u64,
}

/// An environment's reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// These tokens follow; then it is the model's turn.
    Says(Vec<u32>),
    /// Something longer than the limit of tokens that an episode reads: the limit ends it.
    TooLong,
    /// The episode is over.
    Ends(Ended),
}

/// Why an episode stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The environment ended it.
    Done,
    /// The limit of turns.
    MaxTurns,
    /// The limit of generated tokens.
    MaxTokens,
    /// The limit of tokens read.
    MaxReadTokens,
    /// The limit of calls of tools.
    MaxToolCalls,
    /// The limit of seconds.
    MaxSeconds,
    /// The environment failed.
    EnvironmentError,
}

impl Stopped {
    /// Returns its name, as in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::MaxTurns => "max_turns",
            Self::MaxTokens => "max_tokens",
            Self::MaxReadTokens => "max_read_tokens",
            Self::MaxToolCalls => "max_tool_calls",
            Self::MaxSeconds => "max_seconds",
            Self::EnvironmentError => "environment_error",
        }
    }
}

/// The end of an episode, as its environment tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The reward; none if the episode could not be graded.
    pub reward: Option<f32>,
    /// Whether it solved its task. None if the environment gives only rewards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct: Option<bool>,
    /// The reward's named parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, f32)>,
    /// Why there is no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The limit by which the environment ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Stopped>,
}

impl Ended {
    /// Returns the end of an episode with this reward.
    pub fn rewarded(reward: f32, correct: Option<bool>) -> Self {
        Self { reward: Some(reward), correct, parts: Vec::new(), trouble: None, limit: None }
    }

    /// Returns the end of an episode whose environment failed.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { reward: None, correct: None, parts: Vec::new(), trouble: Some(why.into()), limit: None }
    }
}

/// The turns and the end of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// Why it stopped.
    pub stopped: Stopped,
    /// Its reward.
    pub end: Ended,
}

/// A turn of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The tokens read before it, after all tokens so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<u32>,
    /// Number of generated tokens.
    pub tokens: u32,
}

impl Episode {
    /// Returns the number of tokens read from the environment.
    pub fn read(&self) -> usize {
        read_tokens(&self.turns)
    }
}

/// Returns the number of tokens read in these turns.
pub(crate) fn read_tokens(turns: &[Turn]) -> usize {
    turns.iter().map(|turn| turn.read.len()).sum()
}
