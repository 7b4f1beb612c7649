//! Episodes: rollouts of several turns between the model and an environment.
//!
//! An environment says something after each turn, or ends the episode with a reward. It never sees tokens of
//! other episodes, and nothing that it does costs more than its own rollout: a failure or a text that is too
//! long ends the episode for a reason that is recorded, and a reply to an earlier turn is ignored.

use std::time::Duration;

use allot_allocation::PromptId;
pub use allot_allocation::{Stopped, TurnLength};
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

/// A turn of an episode that another one keeps: the tokens that were read before it, and those that were
/// generated in it.
pub type Past = (Vec<u32>, Vec<u32>);

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
    /// They follow in this training row of the episode: an earlier one, or the next, which begins with them.
    Elsewhere(u32, Vec<u32>),
    /// Something longer than the limit of tokens that an episode reads: the limit ends it.
    TooLong,
    /// The episode is over.
    Ends(Ended),
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
    /// The turns that it keeps of another episode, in order. The first of its own turns reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<TurnLength>,
    /// Its own turns, in order.
    pub turns: Vec<Turn>,
    /// Why it stopped.
    pub stopped: Stopped,
    /// Its reward.
    pub end: Ended,
}

/// A turn of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The training row that it belongs to. Rows are numbered as they begin.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub row: u32,
    /// The tokens read before it, after all tokens of its row so far. A row but the first begins with these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<u32>,
    /// Number of generated tokens.
    pub tokens: u32,
}

/// Returns the number of training rows of these turns.
pub(crate) fn rows(turns: &[Turn]) -> u32 {
    turns.iter().map(|turn| turn.row + 1).max().unwrap_or(0)
}

impl Episode {
    /// Returns the number of tokens read, those that it keeps of another episode included.
    pub fn read(&self) -> usize {
        self.turns.iter().map(|turn| turn.read.len()).sum()
    }

    /// Returns the number of its training rows.
    pub fn rows(&self) -> u32 {
        rows(&self.turns).max(1)
    }

    /// Returns all turns, those that it keeps first. `tokens` are those that it generated itself.
    pub fn all_turns(&self, tokens: &[u32]) -> Vec<Past> {
        let first = self.turns.first().map_or(&[][..], |turn| &turn.read);
        let mut kept = first.iter().copied();
        let mut all: Vec<Past> = Vec::new();
        for TurnLength(read, said) in &self.kept {
            let mut take = |n: &u32| kept.by_ref().take(*n as usize).collect();
            all.push((take(read), take(said)));
        }
        let (mut first, mut generated) = (Some(kept.collect()), tokens.iter().copied());
        for turn in &self.turns {
            let said = generated.by_ref().take(turn.tokens as usize).collect();
            all.push((first.take().unwrap_or_else(|| turn.read.clone()), said));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_episode_keeps_is_told_turn_by_turn() {
        let kept = vec![TurnLength(0, 2), TurnLength(1, 1)];
        let turn = |read: &[u32], tokens| Turn { row: 0, read: read.to_vec(), tokens };
        let turns = vec![turn(&[1, 2, 3, 4, 5], 2), turn(&[8], 1)];
        let end = Ended::rewarded(1.0, None);
        let episode = Episode { kept, turns, stopped: Stopped::Done, end };
        let all = episode.all_turns(&[6, 7, 9]);
        let told = |read: &[u32], said: &[u32]| (read.to_vec(), said.to_vec());
        assert_eq!(all, [told(&[], &[1, 2]), told(&[3], &[4]), told(&[5], &[6, 7]), told(&[8], &[9])]);
    }
}
