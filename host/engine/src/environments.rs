//! The [`Environments`] trait: the other side of episodes.

use std::sync::mpsc::Sender;

use crate::episode::{EpisodeLimits, Opening, Reply, Stopped};
use crate::talk::Event;

/// A turn of the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said<'a> {
    /// The generated tokens.
    pub tokens: &'a [u32],
    /// The log-probability of each.
    pub log_probs: &'a [f32],
}

/// The environments of a run.
pub trait Environments {
    /// Returns the limits of an episode.
    fn limits(&self) -> EpisodeLimits;

    /// Begins an episode. The first reply says what to read after the prompt: often nothing.
    fn begin(&mut self, opening: Opening, replies: &Replies);

    /// Takes a turn. With `stop`, a limit has ended the episode and only its reward is missing;
    /// there are no tokens if the limit was found only after an earlier reply.
    fn turn(&mut self, number: usize, said: Said<'_>, stop: Option<Stopped>, replies: &Replies);

    /// Gives up all episodes that are open.
    fn abandon(&mut self);

    /// Returns why no episode can be played any more, if so.
    fn failure(&self) -> Option<String> {
        None
    }
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
    /// Returns where the reply with this index goes.
    pub fn of(tell: &Sender<Event>, number: usize, index: u32) -> Self {
        Self { tell: tell.clone(), number, index }
    }

    /// Sends the reply. A second reply to one turn is ignored.
    pub fn send(&self, reply: Reply) {
        // The receiver is gone after an interrupt.
        let _ = self.tell.send(Event::Reply(self.number, self.index, reply));
    }
}
