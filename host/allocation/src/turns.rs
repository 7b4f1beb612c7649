//! Episodes as policies see them: the turns of rollouts, why these ended, and what they continue.

use serde::{Deserialize, Serialize};

/// Tokens of an episode's turn: those read before it, and those generated in it. What a rollout keeps of another
/// is read before its first turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLength(pub u32, pub u32);

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
    /// The environment failed. Such an episode has no reward, so no policy sees it.
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

/// A buffered rollout that a new rollout of the same prompt continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its position in its group's lists.
    pub rollout: u32,
    /// The last of its turns that is kept, from 0. Another turn follows it.
    pub turn: u32,
}

/// What a buffered rollout continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The position in the group's lists of the rollout that it continues; none if that one is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<u32>,
    /// The last turn that was kept of it.
    pub turn: u32,
}

/// The turns of a group's rollouts. Each list is empty, or runs in parallel to the group's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupTurns {
    /// The turns of each rollout. Empty if none is an episode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<Vec<TurnLength>>,
    /// Why each rollout stopped. Empty if none is an episode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<Stopped>,
    /// What each rollout continues. Empty if all began with the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Option<Origin>>,
}

impl GroupTurns {
    /// Returns whether no rollout is an episode.
    pub fn are_none(&self) -> bool {
        self.lengths.is_empty() && self.stopped.is_empty() && self.origins.is_empty()
    }

    /// Returns the number of turns of the rollout at this position.
    pub fn of(&self, position: usize) -> u32 {
        self.lengths.get(position).map_or(0, |turns| turns.len() as u32)
    }

    /// Returns whether the rollout at this position began with the prompt.
    pub fn is_whole(&self, position: usize) -> bool {
        self.origins.get(position).is_none_or(Option::is_none)
    }

    /// Takes the turns of the group's next rollout, which comes after `n` others.
    pub(crate) fn push(
        &mut self,
        n: usize,
        (turns, stopped): (Vec<TurnLength>, Option<Stopped>),
        start: Option<Start>,
    ) {
        if stopped.is_some() || !self.stopped.is_empty() {
            self.lengths.resize(n, Vec::new());
            self.stopped.resize(n, Stopped::Done);
            self.lengths.push(turns);
            self.stopped.push(stopped.unwrap_or(Stopped::Done));
        }
        if start.is_some() || !self.origins.is_empty() {
            self.origins.resize(n, None);
            self.origins.push(start.map(|Start { rollout, turn }| Origin { rollout: Some(rollout), turn }));
        }
    }

    /// Keeps only the rollouts that are marked.
    pub(crate) fn retain(&mut self, keep: &[bool]) {
        retain(&mut self.lengths, keep);
        retain(&mut self.stopped, keep);
        retain(&mut self.origins, keep);
        // What they continue has moved, or is gone.
        for origin in self.origins.iter_mut().flatten() {
            let place = origin
                .rollout
                .map(|rollout| rollout as usize)
                .filter(|rollout| keep.get(*rollout) == Some(&true));
            origin.rollout = place.map(|place| keep[..place].iter().filter(|kept| **kept).count() as u32);
        }
        // Keep one representation: a group of rollouts from the prompt on has an empty list.
        if self.origins.iter().all(Option::is_none) {
            self.origins.clear();
        }
    }
}

/// Keeps only the entries that are marked, of a list that is empty or has a mark for each entry.
pub(crate) fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| *keep.next().expect("lists run in parallel"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rollout_continues_moves_with_the_group_and_is_forgotten_with_its_rollout() {
        let mut turns = GroupTurns::default();
        let done = || (vec![TurnLength(0, 2), TurnLength(3, 4)], Some(Stopped::Done));
        turns.push(0, done(), None);
        turns.push(1, done(), None);
        assert!(turns.origins.is_empty() && turns.is_whole(1));
        turns.push(2, done(), Some(Start { rollout: 0, turn: 0 }));
        turns.push(3, done(), Some(Start { rollout: 1, turn: 0 }));
        assert!(turns.is_whole(1) && !turns.is_whole(2));
        turns.retain(&[false, true, true, true]);
        let origin = |rollout| Some(Origin { rollout, turn: 0 });
        assert_eq!(turns.origins, [None, origin(None), origin(Some(0))]);
        assert_eq!((turns.lengths.len(), turns.stopped.len()), (3, 3));
        turns.retain(&[true, false, false]);
        assert!(turns.origins.is_empty());
    }
}
