//! Episodes whose environment asks for each turn: what was said so far, and whose move it is.
//!
//! ```text
//! environment ──asked──► Sessions ──Reply::Says──► engine samples ──said──► Sessions ──► environment
//! ```

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use allot_engine::episode::{Ended, Reply, Stopped};
use allot_engine::{Replies, Said};
use tokio::sync::oneshot;

/// A turn that was sampled.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn {
    pub tokens: Vec<u32>,
    pub log_probs: Vec<f32>,
    /// Whether a limit ends the episode with it.
    pub is_last: bool,
}

/// Why a request gets no turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A limit has ended the episode.
    Over,
    /// There is no such episode, or it has ended.
    Gone,
    /// A turn of the episode is being sampled.
    Twice,
    /// The request is one that no episode may make, which has ended its own.
    Bad(String),
}

/// A turn that will be there.
type Owed = oneshot::Receiver<Result<Turn, Refusal>>;

/// The episodes that are open, by their secret names.
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Session>>,
    /// Names of episodes that were ended although their environment may go on.
    ended: Mutex<Vec<String>>,
    /// The most tokens that an episode reads.
    most: usize,
    /// The most training rows of an episode.
    rows: usize,
    /// Number of tokens of the model's tokenizer.
    vocabulary: usize,
}

struct Session {
    /// All tokens so far of each training row.
    rows: Vec<Vec<u32>>,
    /// The row of the last turn.
    current: usize,
    /// Whether nothing has been asked yet.
    is_new: bool,
    /// Where the environment's next reply goes; none while a turn is sampled.
    replies: Option<Replies>,
    /// The request that waits for a turn.
    waiting: Option<oneshot::Sender<Result<Turn, Refusal>>>,
    /// Since when the environment has had the move, once it has been asked.
    since: Option<Instant>,
    /// Whether a limit has ended it.
    is_over: bool,
    /// Its end, if that came while a turn was sampled.
    end: Option<Ended>,
}

impl Session {
    /// Returns the training row that these tokens go on in, and those to read in it: the longest of which they have all
    /// tokens, or the next, which begins with them. None if there is no such row.
    fn goes_on<'t>(&self, tokens: &'t [u32], most: usize) -> Option<(usize, &'t [u32])> {
        let rest = self
            .rows
            .iter()
            .enumerate()
            .filter_map(|(i, row)| Some((i, tokens.strip_prefix(row.as_slice())?)));
        let known = rest.min_by_key(|(i, rest)| (rest.len(), usize::from(*i != self.current)));
        let may_begin = !self.is_new && self.rows.len() < most && !tokens.is_empty();
        known.or_else(|| may_begin.then_some((self.rows.len(), tokens)))
    }

    /// Returns why these tokens go on in no row.
    fn rewritten(&self, tokens: &[u32], most: usize) -> String {
        let now = &self.rows[self.current];
        let same = tokens.iter().zip(now).take_while(|(a, b)| a == b).count();
        let (had, has) = (now.len(), tokens.len());
        let why = format!(
            "its {has} tokens rewrite what was said: only the first {same} of {had} are as they were"
        );
        if self.is_new { why } else { format!("{why} (`environment.max_rows` is {most})") }
    }
}

impl Sessions {
    /// Returns no episodes, each of which will read at most so many tokens of this vocabulary, in at most so many training rows.
    pub fn new(most: usize, rows: usize, vocabulary: usize) -> Self {
        Self { all: Mutex::default(), ended: Mutex::default(), most, rows, vocabulary }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an episode that begins with a prompt.
    pub fn open(&self, name: String, prompt: Vec<u32>, replies: Replies) {
        let (waiting, since, end) = (None, None, None);
        let replies = Some(replies);
        let (rows, current, is_new, is_over) = (vec![prompt], 0, true, false);
        let session = Session { rows, current, is_new, replies, waiting, since, is_over, end };
        self.all().insert(name, session);
    }

    /// Notes that an episode's environment has been asked to begin: from now on its time counts.
    pub fn begun(&self, name: &str) {
        // Its first request may have come before.
        if let Some(session) = self.all().get_mut(name).filter(|session| session.is_new) {
            session.since = Some(Instant::now());
        }
    }

    /// Takes a request for a turn after these tokens, and tells the engine.
    ///
    /// # Errors
    ///
    /// A request that gets no turn. One that rewrites what was said ends its episode, unless it may have another training
    /// row.
    pub fn asked(&self, name: &str, tokens: Vec<u32>) -> Result<Owed, Refusal> {
        let mut all = self.all();
        let session = all.get_mut(name).ok_or(Refusal::Gone)?;
        if session.is_over {
            return Err(Refusal::Over);
        }
        if session.replies.is_none() {
            return Err(Refusal::Twice);
        }
        let Some((row, read)) = session.goes_on(&tokens, self.rows) else {
            let why = session.rewritten(&tokens, self.rows);
            drop(all);
            return Err(self.refuse(name, why));
        };
        let strange = read.iter().find(|token| **token as usize >= self.vocabulary);
        let wrong = if session.is_new && read.len() > self.most {
            Some("it begins with more tokens than `max_read_tokens`".to_owned())
        } else {
            let size = self.vocabulary;
            strange
                .map(|token| format!("it has token {token}; expected one below {size}, as the tokenizer has"))
        };
        if let Some(why) = wrong {
            drop(all);
            return Err(self.refuse(name, why));
        }
        let reply = if row == session.current {
            Reply::Says(read.to_vec())
        } else {
            Reply::Elsewhere(row as u32, read.to_vec())
        };
        session.is_new = false;
        let (owing, owed) = oneshot::channel();
        session.rows.resize(session.rows.len().max(row + 1), Vec::new());
        session.rows[row] = tokens;
        session.current = row;
        session.waiting = Some(owing);
        session.since = None;
        let replies = session.replies.take();
        drop(all);
        if let Some(replies) = replies {
            replies.send(reply);
        }
        Ok(owed)
    }

    /// Ends an episode whose environment has made a request that none may make.
    pub fn refuse(&self, name: &str, why: String) -> Refusal {
        let mut all = self.all();
        let Some(session) = all.get_mut(name) else { return Refusal::Gone };
        let end = Ended::failed(format!("a request of the environment is refused: {why}"));
        if let Some(replies) = session.replies.take() {
            all.remove(name);
            drop(all);
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
            replies.send(Reply::Ends(end));
        } else {
            // The turn that is sampled is paid for; then it ends.
            session.end.get_or_insert(end);
        }
        Refusal::Bad(why)
    }

    /// Hands a turn to the environment. With `stop`, a limit has ended the episode.
    pub fn said(&self, name: &str, said: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        let mut all = self.all();
        let Some(session) = all.get_mut(name) else {
            return replies.send(Reply::Ends(Ended::failed("the episode is over")));
        };
        if let Some(end) = session.end.take() {
            all.remove(name);
            return replies.send(Reply::Ends(end));
        }
        session.replies = Some(replies.clone());
        session.since = Some(Instant::now());
        session.is_over = stop.is_some();
        let turn = if said.tokens.is_empty() && stop.is_some() {
            Err(Refusal::Over)
        } else {
            session.rows[session.current].extend(said.tokens);
            let (tokens, log_probs) = (said.tokens.to_vec(), said.log_probs.to_vec());
            Ok(Turn { tokens, log_probs, is_last: stop.is_some() })
        };
        // A client that has gone away has no use for it; its environment ends by itself.
        let _ = session.waiting.take().map(|waiting| waiting.send(turn));
    }

    /// Ends an episode as its environment says; one that is over already stays as it is.
    pub fn ended(&self, name: &str, end: Ended) {
        let mut all = self.all();
        let Some(session) = all.get_mut(name) else { return };
        let Some(replies) = session.replies.take() else {
            session.end.get_or_insert(end);
            return;
        };
        all.remove(name);
        drop(all);
        replies.send(Reply::Ends(end));
    }

    /// Ends the episodes whose environment has had the move for longer than `most`. Returns their names, and those of
    /// refused ones: their environments may go on.
    pub fn overdue(&self, most: Duration) -> Vec<String> {
        let late = |(name, session): (&String, &Session)| {
            session.since.is_some_and(|since| since.elapsed() > most).then(|| name.clone())
        };
        let names: Vec<String> = self.all().iter().filter_map(late).collect();
        let why = format!("the environment did not reply within {} s", most.as_secs_f64());
        for name in &names {
            self.ended(name, Ended::failed(&why));
        }
        let refused = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        [names, refused].concat()
    }

    /// Returns whether an episode is open.
    pub fn are_open(&self) -> bool {
        !self.all().is_empty()
    }

    /// Forgets all episodes.
    pub fn clear(&self) {
        self.all().clear();
    }
}
