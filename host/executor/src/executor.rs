//! What makes runs, and what it hears of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use allot_base::Result;

/// A run that is to be made.
pub struct Task {
    /// Which it is, by its place among the comparison's runs.
    pub run: usize,
    /// What this program is to be called with.
    pub arguments: Vec<OsString>,
    /// The file for what it says.
    pub log: PathBuf,
}

/// What an executor heard.
pub enum News {
    /// A run is under way.
    Began(usize),
    /// A run ended. The last is the file in which to read more, where that is not plain.
    Ended(usize, Exit, Option<PathBuf>),
    /// A notice for the user who waits.
    Word(String),
}

/// How a run's process ended.
pub enum Exit {
    /// As it should.
    Over,
    /// It was asked to pause, and saved.
    Paused,
    /// A signal ended it; in words.
    Killed(String),
    /// It failed; in words, should its log have none.
    Failed(String),
    /// Its cluster ended it, or lost it; why.
    Cut(String),
}

impl Exit {
    /// From an exit code, or none where a signal ended the process.
    pub(crate) fn of(code: Option<i32>, words: String) -> Self {
        // A shell's code for a process that was interrupted.
        let Some(code) = code.filter(|code| *code != 130) else { return Self::Killed(words) };
        match allot_base::Exit::of(code) {
            allot_base::Exit::Good => Self::Over,
            allot_base::Exit::Bad => Self::Paused,
            // A run has no incomplete end.
            allot_base::Exit::Error | allot_base::Exit::Incomplete => Self::Failed(words),
        }
    }
}

/// What makes runs.
pub trait Executor {
    /// Finds runs that an earlier process left under way here. Gives them.
    fn adopt(&mut self) -> Result<Vec<usize>>;

    /// How many runs it takes on now.
    fn room(&self) -> usize;

    /// Takes on runs, as many as there is room for.
    fn start(&mut self, tasks: &[Task]) -> Result<()>;

    /// What happened since.
    fn poll(&mut self) -> Result<Vec<News>>;

    /// Asks all runs to pause: those under way to save what they have, the others not to begin. May be
    /// called again.
    fn pause(&mut self) -> Result<()>;
}

/// What an executor has to know.
pub struct Setup<'s> {
    /// The folder of its runs: the comparison's, or that of one of its tuning's rungs.
    pub folder: &'s Path,
    /// The comparison's folder, with which it goes on.
    pub comparison: &'s Path,
    /// The most concurrent runs; None if no limit was given.
    pub at_once: Option<usize>,
    /// Threads that each takes.
    pub threads: usize,
    /// Whether each takes a GPU.
    pub gpu: bool,
    /// Options for Slurm.
    pub slurm: Option<&'s str>,
}
