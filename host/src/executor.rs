//! Where the runs of a comparison are made: by processes of this machine, or by jobs of a cluster. An
//! executor starts commands and hears how they end. What a run is, and whether it is whole, is for `jobs.rs` to know.

pub mod cluster;
pub mod local;
pub mod ray;
pub mod slurm;
pub mod submission;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use allot_error::{Result, Trouble, count};
use clap::ValueEnum;

use crate::executor::cluster::{Cluster, Queue as _};
use crate::executor::local::Local;
use crate::executor::ray::Ray;
use crate::executor::slurm::Slurm;

/// Where runs can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// As processes of this machine
    Local,
    /// As the tasks of a Slurm job array
    Slurm,
    /// As jobs of the Ray cluster at `RAY_ADDRESS`
    Ray,
}

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
    /// Something that whoever waits should know.
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
    fn of(code: Option<i32>, words: String) -> Self {
        match code {
            Some(0) => Self::Over,
            Some(1) => Self::Paused,
            None | Some(130) => Self::Killed(words),
            Some(_) => Self::Failed(words),
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

    /// Asks all runs to pause: those under way to finish their step and save, the others not to begin. May be
    /// called again.
    fn pause(&mut self) -> Result<()>;
}

/// What an executor has to know.
pub struct Setup<'s> {
    /// The comparison's folder.
    pub folder: &'s Path,
    /// How many runs may be under way; none where nobody said.
    pub at_once: Option<usize>,
    /// Threads that each takes.
    pub threads: usize,
    /// Whether each takes a GPU.
    pub gpu: bool,
    /// Options for Slurm.
    pub slurm: Option<&'s str>,
}

impl Where {
    /// What it is called in a command.
    pub fn key(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "this machine",
            Self::Slurm => Slurm::NAME,
            Self::Ray => Ray::NAME,
        }
    }

    /// The executor.
    pub fn open(self, setup: &Setup<'_>) -> Result<Box<dyn Executor>> {
        for other in [Self::Slurm, Self::Ray].into_iter().filter(|other| *other != self) {
            other.left_nothing(setup)?;
        }
        self.made(setup)
    }

    fn made(self, setup: &Setup<'_>) -> Result<Box<dyn Executor>> {
        Ok(match self {
            Self::Local => Box::new(Local::new(setup.at_once.unwrap_or(1))),
            Self::Slurm => Box::new(Cluster::new(setup.folder, Slurm::new(setup)?)),
            Self::Ray => Box::new(Cluster::new(setup.folder, Ray::new(setup)?)),
        })
    }

    /// Fails where a cluster, whichever, still has runs of the comparison.
    pub fn nothing_left(setup: &Setup<'_>) -> Result<()> {
        [Self::Slurm, Self::Ray].into_iter().try_for_each(|place| place.left_nothing(setup))
    }

    /// Runs that a cluster still has are not begun a second time elsewhere.
    fn left_nothing(self, setup: &Setup<'_>) -> Result<()> {
        let Some(note) = submission::open(setup.folder, self.key())?.pop() else { return Ok(()) };
        let go_on = format!("allot compare --resume {} --executor {}", setup.folder.display(), self.key());
        let left = self.made(setup).and_then(|mut there| there.adopt()).map_err(|trouble| {
            let what = format!("runs of this comparison were left with another executor: {}", trouble.what);
            let none = format!("if none is left there, remove `{}`", note.note().display());
            Trouble::new(what).hint(format!("go on with them: {go_on}\nhint: {none}"))
        })?;
        if left.is_empty() {
            return Ok(());
        }
        let (runs, are) = (count(left.len() as u64, "run"), if left.len() == 1 { "is" } else { "are" });
        let what = format!("{runs} of this comparison {are} still with {}", self.name());
        Err(Trouble::new(what).hint(format!("go on with them: {go_on}")))
    }
}
