//! Episodes between a core and environments: which turn is sampled next, and the plain way to sample it.
//!
//! ```text
//!          Next::Turn                     Event::Turn
//!   talk ─────────────► core samples it ──────────────► talk ─► environment
//!     ▲                                                              │
//!     └───────────────────────── Event::Reply ◄──────────────────────┘
//! ```
//!
//! A core samples other turns while an episode waits for its environment.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::episode::Reply;
use crate::model::ModelError;
use crate::request::{Answered, Request};
use crate::{Interrupt, Sampling};

/// The interval at which an interrupt is polled while all episodes wait.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// What happens in an episode, given by its number.
#[derive(Debug)]
pub enum Event {
    /// The core has sampled a turn.
    Turn(usize, Answered),
    /// The environment has replied; the index counts its replies.
    Reply(usize, u32, Reply),
    /// Some time has passed.
    Tick,
    /// The core's threads are gone: one has panicked.
    Lost,
}

/// What follows in an episode, given by its number.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Read these tokens, which follow all tokens so far, then sample a turn.
    Turn(usize, NextTurn),
    /// It has ended.
    End(usize),
}

/// A turn to sample.
#[derive(Clone, Debug, PartialEq)]
pub struct NextTurn {
    /// Tokens to read first.
    pub read: Vec<u32>,
    /// The training row that it belongs to, if that is another one than that of the turn before: what was kept of that one is
    /// of no use.
    pub anew: Option<History>,
    /// The seed of its random numbers.
    pub seed: u64,
    /// How its tokens are drawn.
    pub sampling: Sampling,
}

/// The tokens of the training row in which an episode's next turn is: what a sampler that keeps nothing reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// What the row begins with; none for the prompt.
    pub beginning: Option<Vec<u32>>,
    /// All tokens after that, those to read before the turn included.
    pub own: Vec<u32>,
}

impl History {
    /// Takes what is read before a turn.
    pub fn read(&mut self, turn: &NextTurn) {
        match &turn.anew {
            Some(anew) => self.clone_from(anew),
            None => self.own.extend(&turn.read),
        }
    }

    /// Takes the tokens that were generated in a turn.
    pub fn said(&mut self, tokens: &[u32]) {
        self.own.extend(tokens);
    }

    /// Returns what the row begins with, and all tokens after that, in an episode with this prompt.
    pub fn after<'a>(&'a self, prompt: &'a [u32]) -> (&'a [u32], &'a [u32]) {
        (self.beginning.as_deref().unwrap_or(prompt), &self.own)
    }
}

/// Connects a core's turns with the environments' replies.
pub struct Talk<'a> {
    tell: Sender<Event>,
    told: Receiver<Event>,
    /// The last [`Event::Tick`].
    ticked: Instant,
    take: &'a mut dyn FnMut(Event) -> Option<Next>,
}

impl<'a> Talk<'a> {
    /// Returns a talk in which `take` says what follows an event. Events of other threads are sent to `tell`.
    pub fn new(
        (tell, told): (Sender<Event>, Receiver<Event>),
        take: &'a mut dyn FnMut(Event) -> Option<Next>,
    ) -> Self {
        Self { tell, told, ticked: Instant::now(), take }
    }

    /// Returns a channel for events.
    pub fn channel() -> (Sender<Event>, Receiver<Event>) {
        channel()
    }

    /// Returns where a core's threads send the turns that they have sampled.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.tell.clone()
    }

    /// Waits for an event, and returns what follows it and all other events that are there. Returns `None` after
    /// an interrupt, and if the core is lost.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Option<Vec<Next>> {
        let first = loop {
            if interrupt.is_asked() {
                return None;
            }
            // Also while there are other events. What follows from it is an event of its own.
            if self.ticked.elapsed() >= LOOK {
                self.ticked = Instant::now();
                (self.take)(Event::Tick);
            }
            match self.told.recv_timeout(LOOK) {
                Ok(Event::Lost) | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(event) => break event,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let mut all: Vec<Next> = (self.take)(first).into_iter().collect();
        while let Ok(event) = self.told.try_recv() {
            match event {
                Event::Lost => return None,
                event => all.extend((self.take)(event)),
            }
        }
        Some(all)
    }
}

/// Samples an answer to each request, and passes it on with the request's index.
pub type Sampler<'a> =
    &'a mut dyn FnMut(&[Request<'_>], &mut dyn FnMut(usize, Answered)) -> Result<(), ModelError>;

/// Samples episodes turn by turn, each turn from its prompt on: the plain twin of kept caches. `sample`
/// samples an answer to each request.
pub fn from_the_start(
    prompts: &[&[u32]],
    sample: Sampler<'_>,
    talk: &mut Talk<'_>,
    interrupt: &Interrupt,
) -> Result<(), ModelError> {
    let mut histories: Vec<History> = vec![History::default(); prompts.len()];
    let mut open = prompts.len();
    while open > 0 {
        let Some(next) = talk.wait(interrupt) else { return Ok(()) };
        let mut turns = Vec::new();
        for next in next {
            match next {
                Next::Turn(number, turn) => turns.push((number, turn)),
                Next::End(_) => open -= 1,
            }
        }
        // Episodes of one prompt are neighbours, so that their first turns share its pass.
        turns.sort_by_key(|(number, _)| *number);
        for (number, turn) in &turns {
            histories[*number].read(turn);
        }
        let request = |(number, turn): &(usize, NextTurn)| {
            let (prompt, history) = histories[*number].after(prompts[*number]);
            Request { prompt, history, seed: turn.seed, sampling: turn.sampling }
        };
        let requests: Vec<Request<'_>> = turns.iter().map(request).collect();
        let mut answers = Vec::with_capacity(requests.len());
        sample(&requests, &mut |i, answer| answers.push((turns[i].0, answer)))?;
        for (number, answer) in answers {
            histories[number].said(&answer.tokens);
            // The environment's reply is an event of its own.
            let _ = talk.tell.send(Event::Turn(number, answer));
        }
    }
    Ok(())
}
