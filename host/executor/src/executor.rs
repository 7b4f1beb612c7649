//! The interface of executors.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use allot_base::Result;

/// A run to execute.
pub struct Task {
    /// Its index among the comparison's runs.
    pub run: usize,
    /// The arguments for this program.
    pub arguments: Vec<OsString>,
    /// The file for its output.
    pub log: PathBuf,
}

/// An event that an executor reports.
pub enum News {
    /// A run has begun.
    Began(usize),
    /// A run has ended. The path is a file with more information, if it is not the run's log.
    Ended(usize, Exit, Option<PathBuf>),
    /// A notice for the user who waits.
    Word(String),
}

/// How a run's process ended.
pub enum Exit {
    /// It succeeded.
    Over,
    /// It was asked to pause, and saved.
    Paused,
    /// A signal ended it; the text describes the signal.
    Killed(String),
    /// It failed; the text is used if its log has no error.
    Failed(String),
    /// Its cluster ended or lost it, for this reason.
    Cut(String),
}

impl Exit {
    /// Converts an exit code; none if a signal ended the process.
    pub(crate) fn of(code: Option<i32>, words: String) -> Self {
        // A shell's exit code for a process that was interrupted.
        let Some(code) = code.filter(|code| *code != 130) else { return Self::Killed(words) };
        match allot_base::Exit::of(code) {
            allot_base::Exit::Good => Self::Over,
            allot_base::Exit::Bad => Self::Paused,
            // Runs do not use the exit code for an incomplete result.
            allot_base::Exit::Error | allot_base::Exit::Incomplete => Self::Failed(words),
        }
    }
}

/// Executes runs.
pub trait Executor {
    /// Returns the runs that an earlier process left running here.
    fn adopt(&mut self) -> Result<Vec<usize>>;

    /// Returns how many more runs can be started now.
    fn room(&self) -> usize;

    /// Starts runs, at most as many as [`Self::room`] returns.
    fn start(&mut self, tasks: &[Task]) -> Result<()>;

    /// Returns the events since the last call.
    fn poll(&mut self) -> Result<Vec<News>>;

    /// Asks all runs to pause: running ones save, and queued ones do not begin. May be called repeatedly.
    fn pause(&mut self) -> Result<()>;
}

/// The settings of an executor.
pub struct Setup<'s> {
    /// The folder of its runs: the comparison's, or that of one rung of its tuning.
    pub folder: &'s Path,
    /// The comparison's folder, for commands that resume it.
    pub comparison: &'s Path,
    /// The most concurrent runs; None if no limit was given.
    pub at_once: Option<usize>,
    /// Threads of each run.
    pub threads: usize,
    /// Whether each run uses a GPU.
    pub gpu: bool,
    /// Options for Slurm.
    pub slurm: Option<&'s str>,
}
