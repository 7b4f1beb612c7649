//! Episodes: rollouts of several turns between the model and an environment.
//!
//! An environment says something after each turn, or ends the episode with a reward. It never sees tokens of
//! other episodes, and nothing that it does costs more than its own rollout: a failure, a reply to an old turn
//! or to none, or a text that is too long ends the episode for a reason that is recorded.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use allot_allocation::{PromptId, seed};
use serde::{Deserialize, Serialize};

use crate::Sampling;
use crate::core::Answered;
use crate::talk::{Event, Next, NextTurn};

/// Limits of an episode besides its generated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeLimits {
    /// Turns of the model. At least 1.
    pub turns: u32,
    /// Tokens read from the environment.
    pub read: u32,
    /// Time until an environment must have replied. None for an environment that always replies.
    pub reply: Option<Duration>,
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
    /// The episode is over.
    Ends(Ended),
}

/// The environments of a run.
pub trait Environments {
    /// Returns the limits of an episode.
    fn limits(&self) -> EpisodeLimits;

    /// Begins an episode. The first reply says what to read after the prompt: often nothing.
    fn begin(&mut self, opening: Opening, replies: &Replies);

    /// Takes the tokens of a turn. With `stop`, a limit has ended the episode and only its reward is missing;
    /// there are no tokens if the limit was found only after an earlier reply.
    fn turn(&mut self, number: usize, tokens: &[u32], stop: Option<Stopped>, replies: &Replies);

    /// Gives up all episodes that are open.
    fn abandon(&mut self);
}

/// Where an episode's replies go, from any thread.
#[derive(Clone, Debug)]
pub struct Replies {
    tell: Sender<Event>,
    number: usize,
    /// Index of the reply that is awaited. Another one is ignored.
    index: u32,
}

impl Replies {
    /// Returns where the first reply of an episode goes.
    pub(crate) fn first(tell: &Sender<Event>, number: usize) -> Self {
        Self { tell: tell.clone(), number, index: 0 }
    }

    /// Sends the reply. A second reply to one turn is ignored.
    pub fn send(&self, reply: Reply) {
        // The receiver is gone after an interrupt.
        let _ = self.tell.send(Event::Reply(self.number, self.index, reply));
    }
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
            Self::EnvironmentError => "environment_error",
        }
    }
}

/// The end of an episode, as its environment tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The reward; none if the episode could not be graded.
    pub reward: Option<f32>,
    /// Whether it solved its task.
    pub correct: bool,
    /// The reward's named parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, f32)>,
    /// Why there is no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Ended {
    /// Returns the end of an episode whose environment failed.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { reward: None, correct: false, parts: Vec::new(), trouble: Some(why.into()) }
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
        self.turns.iter().map(|turn| turn.read.len()).sum()
    }
}

/// An episode under way.
pub(crate) struct Dialogue {
    opening: Opening,
    seed: u64,
    sampling: Sampling,
    limits: EpisodeLimits,
    turns: Vec<Turn>,
    answered: Answered,
    entropy: f64,
    read: u32,
    /// Index of the reply that is awaited, if one is, and since when.
    awaited: Option<(u32, Instant)>,
    /// Number of replies so far.
    replied: u32,
    stopped: Option<Stopped>,
}

impl Dialogue {
    /// Returns an episode that waits for its environment's first reply.
    pub(crate) fn new(opening: Opening, seed: u64, sampling: Sampling, limits: EpisodeLimits) -> Self {
        let (turns, answered) = (Vec::new(), Answered::default());
        let (awaited, stopped) = (Some((0, Instant::now())), None);
        Self {
            opening,
            seed,
            sampling,
            limits,
            turns,
            answered,
            entropy: 0.0,
            read: 0,
            awaited,
            replied: 0,
            stopped,
        }
    }

    /// Takes a turn that was sampled, and hands it to the environment.
    pub(crate) fn turn(&mut self, turn: Answered, environments: &mut dyn Environments, tell: &Sender<Event>) {
        let Answered { tokens, log_probs, entropy, truncated, mask } = turn;
        self.entropy += f64::from(entropy) * tokens.len() as f64;
        if let Some(last) = self.turns.last_mut() {
            last.tokens = tokens.len() as u32;
        }
        self.answered.tokens.extend(&tokens);
        self.answered.log_probs.extend(log_probs);
        mask.rows().for_each(|row| self.answered.mask.push(row));
        self.stopped = truncated.then_some(Stopped::MaxTokens);
        self.await_reply(&tokens, environments, tell);
    }

    fn await_reply(&mut self, tokens: &[u32], environments: &mut dyn Environments, tell: &Sender<Event>) {
        let (number, index) = (self.opening.number, self.replied);
        self.awaited = Some((index, Instant::now()));
        environments.turn(number, tokens, self.stopped, &Replies { tell: tell.clone(), number, index });
    }

    /// Takes the reply with this index. Returns what follows; `None` for a reply that nobody waits
    /// for.
    pub(crate) fn reply(
        &mut self,
        (index, reply): (u32, Reply),
        environments: &mut dyn Environments,
        tell: &Sender<Event>,
    ) -> Option<Followed> {
        self.awaited.take_if(|(awaited, _)| *awaited == index)?;
        self.replied += 1;
        let number = self.opening.number;
        let read = match reply {
            Reply::Ends(end) => return Some(Followed::Ended(end)),
            Reply::Says(_) if self.stopped.is_some() => {
                let why = "the environment was told that the episode is over and went on";
                return Some(Followed::Ended(Ended::failed(why)));
            }
            Reply::Says(read) => read,
        };
        let generated = self.answered.tokens.len() as u32;
        self.stopped = self.limit(read.len(), generated);
        if self.stopped.is_some() {
            if self.turns.is_empty() {
                let why = format!("the environment began with {} tokens, more than the limit", read.len());
                return Some(Followed::Ended(Ended::failed(why)));
            }
            self.await_reply(&[], environments, tell);
            return None;
        }
        self.read += read.len() as u32;
        let sampling = Sampling { max_tokens: self.sampling.max_tokens - generated, ..self.sampling };
        let seed = seed::turn(self.seed, self.turns.len() as u32);
        self.turns.push(Turn { read: read.clone(), tokens: 0 });
        Some(Followed::Next(Next::Turn(number, NextTurn { read, seed, sampling })))
    }

    /// Replies for an environment that did not in time: its episode has failed.
    pub(crate) fn overdue(&self, tell: &Sender<Event>) {
        let Some(((index, since), most)) = self.awaited.zip(self.limits.reply) else { return };
        if since.elapsed() > most {
            let why = format!("the environment did not reply within {} s", most.as_secs_f64());
            Replies { tell: tell.clone(), number: self.opening.number, index }
                .send(Reply::Ends(Ended::failed(why)));
        }
    }

    /// Returns the limit that forbids another turn after `generated` tokens, with `more` tokens to read first.
    fn limit(&self, more: usize, generated: u32) -> Option<Stopped> {
        let EpisodeLimits { turns, read, .. } = self.limits;
        [
            (self.turns.len() as u32 >= turns, Stopped::MaxTurns),
            (generated >= self.sampling.max_tokens, Stopped::MaxTokens),
            (self.read as usize + more > read as usize, Stopped::MaxReadTokens),
        ]
        .into_iter()
        .find_map(|(reached, stopped)| reached.then_some(stopped))
    }

    /// Returns the complete episode, with its tokens.
    pub(crate) fn finish(self, end: Ended) -> (Answered, Episode) {
        let failed = end.reward.is_none() && end.trouble.is_some();
        let by_environment = if failed { Stopped::EnvironmentError } else { Stopped::Done };
        let stopped = self.stopped.unwrap_or(by_environment);
        let generated = self.answered.tokens.len().max(1);
        let truncated = matches!(stopped, Stopped::MaxTokens | Stopped::MaxReadTokens);
        let entropy = (self.entropy / generated as f64) as f32;
        (Answered { entropy, truncated, ..self.answered }, Episode { turns: self.turns, stopped, end })
    }
}

/// What follows a reply.
pub(crate) enum Followed {
    /// Another turn.
    Next(Next),
    /// Nothing: the episode has ended.
    Ended(Ended),
}
