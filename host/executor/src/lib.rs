//! Executes the runs of a comparison: as processes of this machine, or as jobs of a cluster with a queue.
//!
//! An [`Executor`] starts commands of this program and reports how they end; [`Where::open`] returns one.
//! The caller knows what a run is and whether it is complete.
//!
//! ```
//! use allot_executor::Where;
//!
//! assert_eq!(Where::Slurm.key(), "slurm");
//! assert_eq!(Where::Local.name(), "this machine");
//! ```

mod cluster;
mod executor;
mod local;
mod ray;
mod slurm;
mod submission;

use allot_base::{Error, Result, count};
use clap::ValueEnum;

use crate::cluster::{Cluster, Queue as _};
pub use crate::executor::{Executor, Exit, News, Setup, Task};
use crate::local::Local;
use crate::ray::Ray;
use crate::slurm::Slurm;

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

impl Where {
    /// Returns the name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
        }
    }

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "this machine",
            Self::Slurm => Slurm::NAME,
            Self::Ray => Ray::NAME,
        }
    }

    /// Returns the executor.
    pub fn open(self, setup: &Setup<'_>) -> Result<Box<dyn Executor>> {
        for other in [Self::Slurm, Self::Ray].into_iter().filter(|other| *other != self) {
            other.left_nothing(setup)?;
        }
        self.made(setup)
    }

    fn made(self, setup: &Setup<'_>) -> Result<Box<dyn Executor>> {
        Ok(match self {
            Self::Local => Box::new(Local::new(setup.at_once.unwrap_or(1))),
            Self::Slurm => Box::new(Cluster::new((setup.folder, setup.comparison), Slurm::new(setup)?)),
            Self::Ray => Box::new(Cluster::new((setup.folder, setup.comparison), Ray::new(setup)?)),
        })
    }

    /// Fails if any cluster still has runs of the comparison.
    pub fn nothing_left(setup: &Setup<'_>) -> Result<()> {
        [Self::Slurm, Self::Ray].into_iter().try_for_each(|place| place.left_nothing(setup))
    }

    /// Fails if this cluster still has runs, which must not run a second time elsewhere.
    fn left_nothing(self, setup: &Setup<'_>) -> Result<()> {
        let Some(note) = submission::open(setup.folder, self.key())?.pop() else { return Ok(()) };
        let go_on =
            format!("allot compare --resume {} --executor {}", setup.comparison.display(), self.key());
        let left = self.made(setup).and_then(|mut there| there.adopt()).map_err(|error| {
            let what = format!("runs of this comparison were left with another executor: {}", error.what);
            let none = format!("remove `{}` if none is left there", note.note().display());
            Error::new(what).hint(format!("run this to continue them: {go_on}")).hint(none)
        })?;
        if left.is_empty() {
            return Ok(());
        }
        let (runs, are) = (count(left.len() as u64, "run"), if left.len() == 1 { "is" } else { "are" });
        let what = format!("{runs} of this comparison {are} still with {}", self.name());
        Err(Error::new(what).hint(format!("run this to continue them: {go_on}")))
    }
}
