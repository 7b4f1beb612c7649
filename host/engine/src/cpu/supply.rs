//! Where a thread that samples gets its next rows: from a list of requests, or from the turns of episodes.
//! An episode that waits for its environment has no row. Its keys and values are kept here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::parked::Parked;
use crate::core::Request;
use crate::talk::{History, NextTurn};

/// Fewest tokens that are read before all prompts: to read a few by themselves takes as long as to read them with each.
const OPENING: usize = 8;

/// Returns what several prompts begin with. A token of each is left: the next one follows from it.
fn alike<'a>(prompts: impl Iterator<Item = &'a [u32]>) -> &'a [u32] {
    let mut opening: Option<&[u32]> = None;
    let (mut last, mut several) = (&[][..], false);
    for prompt in prompts {
        let known = opening.unwrap_or(prompt);
        if !std::ptr::eq(last, prompt) {
            let same = known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            several |= opening.is_some() && last != prompt;
            opening = Some(&known[..same.min(prompt.len().saturating_sub(1))]);
            last = prompt;
        }
    }
    opening.filter(|opening| several && opening.len() >= OPENING).unwrap_or_default()
}

/// The next rows of all threads.
pub enum Supply<'a> {
    /// Each request once, in order.
    Listed(&'a [Request<'a>], AtomicUsize),
    /// Turns of episodes, as they become due.
    Episodes(Arc<Turns<'a>>),
}

/// A row to sample.
pub struct Wanted<'a> {
    /// The index of its request or episode.
    pub number: usize,
    /// The prompt.
    pub prompt: &'a [u32],
    /// What its training row begins with, if not with the prompt.
    pub beginning: Option<Vec<u32>>,
    /// Tokens to read after what is kept, or after the prompt or beginning.
    pub read: Vec<u32>,
    /// What is kept of the episode so far.
    pub parked: Option<Parked>,
    /// The request for its new tokens. Its prompt and history are not used.
    pub request: Request<'a>,
    /// Maximum number of tokens after the prompt.
    pub room: usize,
}

impl Wanted<'_> {
    /// Returns a row in another training row than that of which something is kept. That is computed again: the keys and
    /// values of all rows would be several times the memory.
    fn anew(self, History { beginning, own }: History) -> Self {
        let room = self.room.saturating_sub(beginning.as_ref().map_or(0, Vec::len));
        Self { beginning, read: own, parked: None, room, ..self }
    }
}

/// Closes turns if it is dropped in a panic, which would otherwise leave the other threads waiting.
pub struct Guard<'a>(pub &'a Supply<'a>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let (true, Supply::Episodes(turns)) = (std::thread::panicking(), self.0) {
            turns.close();
        }
    }
}

/// Closes turns when it is dropped, so that no thread waits for a turn after a panic.
pub struct Closing<'a>(pub &'a Turns<'a>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The turns of episodes that are due, and what is kept of those that wait.
pub struct Turns<'a> {
    prompts: &'a [&'a [u32]],
    /// Maximum number of tokens of an episode after its prompt.
    room: usize,
    /// Maximum number of episodes that are open: each keeps its keys and values.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// First turns, and later turns. Later turns go first, so that few episodes are open.
    first: VecDeque<(usize, NextTurn)>,
    later: VecDeque<(usize, NextTurn)>,
    parked: Vec<Option<Parked>>,
    /// Episodes that have begun and not ended.
    open: usize,
    /// Whether no more turns will come.
    closed: bool,
}

impl<'a> Turns<'a> {
    /// Returns turns of an episode for each prompt; none is due yet.
    pub fn new(prompts: &'a [&'a [u32]], room: usize, most: usize) -> Self {
        let state = State {
            first: VecDeque::new(),
            later: VecDeque::new(),
            parked: std::iter::repeat_with(|| None).take(prompts.len()).collect(),
            open: 0,
            closed: false,
        };
        Self { prompts, room, most, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a turn that is due.
    pub fn add(&self, number: usize, turn: NextTurn) {
        let mut state = self.state();
        let queue = if state.parked[number].is_some() { &mut state.later } else { &mut state.first };
        queue.push_back((number, turn));
        self.changed.notify_one();
    }

    /// Drops what is kept of an episode that has ended. Another one may begin.
    pub fn end(&self, number: usize) {
        let mut state = self.state();
        // An episode that ended before its first turn was never open.
        if state.parked[number].take().is_some() {
            state.open -= 1;
            self.changed.notify_one();
        }
    }

    /// Stops all threads that wait for turns.
    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Keeps an episode's keys and values until its next turn.
    fn park(&self, number: usize, parked: Parked) {
        self.state().parked[number] = Some(parked);
    }

    fn take(&self, wanted: usize, wait: bool) -> Vec<Wanted<'a>> {
        let mut state = self.state();
        let mut taken = Vec::new();
        loop {
            while taken.len() < wanted && !state.closed {
                let Some((number, turn)) = state.next(self.most) else { break };
                let (prompt, parked) = (self.prompts[number], state.parked[number].take());
                let NextTurn { read, anew, seed, sampling } = turn;
                let request = Request { prompt, history: &[], seed, sampling };
                let wanted =
                    Wanted { number, prompt, beginning: None, read, parked, request, room: self.room };
                taken.push(match anew {
                    Some(history) => wanted.anew(history),
                    None => wanted,
                });
            }
            if !taken.is_empty() || !wait || state.closed {
                return taken;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the next turn that is due, if there is one; a first turn only with fewer than `most` open episodes.
    fn next(&mut self, most: usize) -> Option<(usize, NextTurn)> {
        if let Some(later) = self.later.pop_front() {
            return Some(later);
        }
        let first = if self.open < most { self.first.pop_front() } else { None };
        self.open += usize::from(first.is_some());
        first
    }
}

impl<'a> Supply<'a> {
    /// Returns a supply of these requests.
    pub fn of(requests: &'a [Request<'a>]) -> Self {
        Self::Listed(requests, AtomicUsize::new(0))
    }

    /// Returns the number of requests or episodes.
    pub fn len(&self) -> usize {
        match self {
            Self::Listed(requests, _) => requests.len(),
            Self::Episodes(turns) => turns.prompts.len(),
        }
    }

    /// Returns the tokens that all prompts begin with, if there are several and it pays to read these first.
    pub fn opening(&self) -> &'a [u32] {
        match self {
            Self::Listed(requests, _) => alike(requests.iter().map(|request| request.prompt)),
            Self::Episodes(turns) => alike(turns.prompts.iter().copied()),
        }
    }

    /// Returns the next rows, at most `wanted`. With `wait`, none means that there will be no more.
    pub fn take(&self, wanted: usize, wait: bool) -> Vec<Wanted<'a>> {
        match self {
            Self::Listed(requests, next) => {
                let first = next.fetch_add(wanted, Ordering::Relaxed).min(requests.len());
                let taken = requests.iter().enumerate().take(requests.len().min(first + wanted)).skip(first);
                let one = |(number, request): (usize, &Request<'a>)| Wanted {
                    number,
                    prompt: request.prompt,
                    beginning: None,
                    read: request.history.to_vec(),
                    parked: None,
                    request: *request,
                    room: request.history.len() + request.sampling.max_tokens as usize,
                };
                taken.map(one).collect()
            }
            Self::Episodes(turns) => turns.take(wanted, wait),
        }
    }

    /// Keeps what a finished row has computed, if another turn may follow. Otherwise gives it back.
    pub fn keep(&self, number: usize, parked: Parked) -> Option<Parked> {
        match self {
            Self::Listed(..) => Some(parked),
            Self::Episodes(turns) => {
                turns.park(number, parked);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prompts_begin_with_leaves_a_token_of_each() {
        let all: Vec<u32> = (0..20).collect();
        let of = |prompts: &[&[u32]]| alike(prompts.iter().copied()).len();
        assert_eq!(of(&[&all, &all[..12], &all]), 11);
        assert_eq!(of(&[&all[..12], &all, &[&all[..15], &[9; 9]].concat()]), 11);
        assert_eq!(of(&[&all, &[&all[..10], &[7]].concat()]), 10);
        // Read by itself it would take longer, or nothing shares it.
        assert_eq!(of(&[&all, &all[..OPENING]]), 0);
        assert_eq!(of(&[&all, &all.clone(), &all]), 0);
        assert_eq!(of(&[&all]) + of(&[]) + of(&[&all, &[]]), 0);
        assert_eq!(of(&[&all, &[&[3], &all[1..]].concat()]), 0);
    }
}
