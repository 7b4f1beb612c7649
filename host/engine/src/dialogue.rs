//! An episode under way: its turns and replies, and what follows each.

use std::sync::mpsc::Sender;
use std::time::Instant;

use allot_allocation::{TurnLength, seed};

use crate::Sampling;
use crate::environments::{Environments, Replies, Said};
use crate::episode::{Ended, Episode, EpisodeLimits, Opening, Past, Reply, Stopped, Turn, rows};
use crate::request::Answered;
use crate::talk::{Event, History, NextTurn};
use crate::training_row::TrainingRow;

/// What an episode keeps of another: some turns, and the reply after them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) turns: Vec<Past>,
    pub(crate) reply: Vec<u32>,
}

impl Kept {
    /// Returns what is kept of an episode with these turns, up to one of them; `None` if no turn follows it.
    pub(crate) fn of(mut turns: Vec<Past>, last: usize) -> Option<Self> {
        turns.truncate(last.checked_add(2)?);
        let (reply, _) = turns.pop().filter(|_| turns.len() == last + 1)?;
        Some(Self { turns, reply })
    }

    fn generated(&self) -> u32 {
        self.turns.iter().map(|(_, said)| said.len() as u32).sum()
    }

    /// Returns the reply that is expected after `given` turns.
    fn expected(&self, given: usize) -> Option<&[u32]> {
        let after = (!self.turns.is_empty() && given == self.turns.len()).then_some(&self.reply);
        self.turns.get(given).map(|(read, _)| read).or(after).map(Vec::as_slice)
    }
}

/// An episode under way.
pub(crate) struct Dialogue {
    opening: Opening,
    seed: u64,
    sampling: Sampling,
    limits: EpisodeLimits,
    kept: Kept,
    turns: Vec<Turn>,
    answered: Answered,
    /// Tokens read from the environment so far.
    read: usize,
    entropy: f64,
    /// Index of the reply that is awaited, if one is, and since when.
    awaited: Option<(u32, Instant)>,
    /// Number of replies so far.
    replied: u32,
    stopped: Option<Stopped>,
    /// When its first turn was whole: before, it may wait for a row.
    began: Option<Instant>,
}

impl Dialogue {
    /// Returns an episode that waits for its environment's first reply.
    pub(crate) fn new(
        (opening, seed, kept): (Opening, u64, Kept),
        sampling: Sampling,
        limits: EpisodeLimits,
    ) -> Self {
        let (turns, answered) = (Vec::new(), Answered::default());
        let (awaited, stopped, began) = (Some((0, Instant::now())), None, None);
        let (entropy, replied, read) = (0.0, 0, 0);
        Self {
            opening,
            seed,
            sampling,
            limits,
            kept,
            turns,
            answered,
            read,
            entropy,
            awaited,
            replied,
            stopped,
            began,
        }
    }

    /// Takes a turn that was sampled, and hands it to the environment.
    pub(crate) fn turn(&mut self, turn: Answered, environments: &mut dyn Environments, tell: &Sender<Event>) {
        self.began.get_or_insert_with(Instant::now);
        let Answered { tokens, log_probs, entropy, truncated, mask } = turn;
        self.entropy += f64::from(entropy) * tokens.len() as f64;
        if let Some(last) = self.turns.last_mut() {
            last.tokens = tokens.len() as u32;
        }
        self.answered.tokens.extend(&tokens);
        self.answered.log_probs.extend(&log_probs);
        mask.rows().for_each(|row| self.answered.mask.push(row));
        self.stopped = truncated.then_some(Stopped::MaxTokens);
        self.await_reply(Said { tokens: &tokens, log_probs: &log_probs }, environments, tell);
    }

    fn await_reply(&mut self, said: Said<'_>, environments: &mut dyn Environments, tell: &Sender<Event>) {
        let (number, index) = (self.opening.number, self.replied);
        self.awaited = Some((index, Instant::now()));
        environments.turn(number, said, self.stopped, &Replies::of(tell, number, index));
    }

    /// Takes the reply with this index. Returns what follows; `None` for a reply that is not
    /// awaited.
    pub(crate) fn reply(
        &mut self,
        (index, reply): (u32, Reply),
        environments: &mut dyn Environments,
        tell: &Sender<Event>,
    ) -> Option<Followed> {
        self.awaited.take_if(|(awaited, _)| *awaited == index)?;
        self.replied += 1;
        let current = self.turns.last().map_or(0, |turn| turn.row);
        let (row, read) = match reply {
            Reply::Ends(end) => return Some(Followed::Ended(end)),
            Reply::Says(_) | Reply::Elsewhere(..) | Reply::TooLong if self.stopped.is_some() => {
                let why = "the environment was told that the episode is over and went on";
                return Some(Followed::Ended(Ended::failed(why)));
            }
            Reply::Elsewhere(row, read) => {
                if let Some(why) = self.no_row(row, &read) {
                    return Some(Followed::Ended(Ended::failed(why)));
                }
                (row, Some(read))
            }
            Reply::Says(read) => (current, Some(read)),
            Reply::TooLong => (current, None),
        };
        let given = (self.replied - 1) as usize;
        if let Some(expected) = self.kept.expected(given) {
            if read.as_deref() != Some(expected) {
                let why = "the environment did not reply as it did in the episode that is continued";
                return Some(Followed::Ended(Ended::failed(why)));
            }
            if let Some((read, said)) = self.kept.turns.get(given).cloned() {
                self.read += read.len();
                self.await_reply(Said { tokens: &said, log_probs: &[] }, environments, tell);
                return None;
            }
        }
        let generated = self.kept.generated() + self.answered.tokens.len() as u32;
        self.stopped = self.limit(read.as_ref().map(Vec::len), generated);
        let (None, Some(read)) = (self.stopped, read) else {
            if self.turns.is_empty() && self.kept.turns.is_empty() {
                let why = "the environment began with more tokens than `max_read_tokens`";
                return Some(Followed::Ended(Ended::failed(why)));
            }
            self.await_reply(Said::default(), environments, tell);
            return None;
        };
        let sampling = Sampling { max_tokens: self.sampling.max_tokens - generated, ..self.sampling };
        let seed = seed::turn(self.seed, self.turns.len() as u32);
        self.read += read.len();
        let kept = self.kept.turns.iter().filter(|_| self.turns.is_empty());
        let read = [kept.flat_map(|(read, said)| read.iter().chain(said)).copied().collect(), read].concat();
        let turn = Turn { row, read: read.clone(), tokens: 0 };
        let anew = (row != current).then(|| self.anew(&turn));
        self.turns.push(turn);
        Some(Followed::Next(NextTurn { read, anew, seed, sampling }))
    }

    /// Returns why an environment can't go on in a training row.
    fn no_row(&self, row: u32, read: &[u32]) -> Option<&'static str> {
        let rows = rows(&self.turns);
        if !self.kept.turns.is_empty() {
            Some("the environment rewrote what was said, in an episode that continues another")
        } else if row > rows {
            Some("the environment went on in a training row that there is not")
        } else if row > 0 && row == rows && read.is_empty() {
            Some("the environment began a training row without tokens")
        } else {
            None
        }
    }

    /// Returns the training row in which this turn is the next, which is another one than that of the turn before.
    fn anew(&self, turn: &Turn) -> History {
        let turns: Vec<Turn> = self.turns.iter().chain([turn]).cloned().collect();
        let row = TrainingRow::of_turns(&turns, &self.answered.tokens).swap_remove(turn.row as usize);
        History { beginning: row.beginning, own: row.own }
    }

    /// Replies for an environment that did not in time: its episode has failed.
    pub(crate) fn overdue(&self, tell: &Sender<Event>) {
        let Some(((index, since), most)) = self.awaited.zip(self.limits.reply) else { return };
        if since.elapsed() > most {
            let why = format!("the environment did not reply within {} s", most.as_secs_f64());
            Replies::of(tell, self.opening.number, index).send(Reply::Ends(Ended::failed(why)));
        }
    }

    /// Returns the limit that forbids another turn after `generated` tokens, with `more` tokens to read first; none if
    /// they are too many.
    fn limit(&self, more: Option<usize>, generated: u32) -> Option<Stopped> {
        let EpisodeLimits { turns, read, whole, .. } = self.limits;
        let so_far = self.read;
        let played = (self.kept.turns.len() + self.turns.len()) as u32;
        [
            (played >= turns, Stopped::MaxTurns),
            (generated >= self.sampling.max_tokens, Stopped::MaxTokens),
            (more.is_none_or(|more| so_far + more > read as usize), Stopped::MaxReadTokens),
            (whole.zip(self.began).is_some_and(|(most, began)| began.elapsed() > most), Stopped::MaxSeconds),
        ]
        .into_iter()
        .find_map(|(reached, stopped)| reached.then_some(stopped))
    }

    /// Returns the complete episode, with its tokens.
    pub(crate) fn finish(self, end: Ended) -> (Answered, Episode) {
        // A checkpoint could not be read with rewards that are NaN or infinite.
        let odd = end.reward.iter().chain(end.parts.iter().map(|(_, x)| x)).copied().find(|x| !x.is_finite());
        let end = odd.map_or(end, |odd| Ended::failed(format!("the environment gave a reward of {odd}")));
        let failed = end.reward.is_none() && end.parts.is_empty();
        let by_limit = self.stopped.or(end.limit).unwrap_or(Stopped::Done);
        let stopped = if failed { Stopped::EnvironmentError } else { by_limit };
        let generated = self.answered.tokens.len().max(1);
        let truncated = matches!(stopped, Stopped::MaxTokens | Stopped::MaxReadTokens);
        let entropy = (self.entropy / generated as f64) as f32;
        // Without a turn of its own it has read nothing, and keeps nothing.
        let kept = self.kept.turns.iter().filter(|_| !self.turns.is_empty());
        let kept = kept.map(|(read, said)| TurnLength(read.len() as u32, said.len() as u32)).collect();
        let episode = Episode { kept, turns: self.turns, stopped, end };
        (Answered { entropy, truncated, ..self.answered }, episode)
    }
}

/// What follows a reply.
pub(crate) enum Followed {
    /// Another turn.
    Next(NextTurn),
    /// Nothing: the episode has ended.
    Ended(Ended),
}
