//! A planned run of a comparison.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, write_lasting};

use crate::components::Copy;
use crate::until::Until;

/// Returns the folder of a comparison's tuning, which has the runs of its trials.
pub fn tuning(comparison: &Path) -> PathBuf {
    comparison.join("tuning")
}

/// The kind of a comparison's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Trains a model. A stopped run resumes from its last checkpoint.
    Train,
    /// Simulates, in the coin-flip world or on a bank. A stopped run is repeated, which takes seconds.
    Simulate,
}

/// A planned run.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The index of its arm, which is its row in a table.
    pub arm: usize,
    /// Its column in a table.
    pub column: usize,
    /// Its trial, in a tuning.
    pub trial: Option<u32>,
    /// Its seed.
    pub seed: u64,
    /// Its config.
    pub config: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// The file of its output.
    pub log: PathBuf,
    /// Where it pauses.
    pub until: Until,
    /// The comparison's copy of its component, if the component is the user's own.
    pub component: Option<Copy>,
}

/// Returns the path of a run's config. `group` is its arm's name, in a tuning with a trial's.
pub fn config_of(folder: &Path, group: &Path, seed: u64) -> PathBuf {
    folder.join("configs").join(group).join(format!("seed-{seed:04}.toml"))
}

impl PlannedRun {
    /// Returns the first arm's run in a folder, in the first column; `group` is as in [`config_of`].
    pub fn new(folder: &Path, group: &Path, seed: u64) -> Self {
        let (place, called) = (folder.join("runs").join(group), format!("seed-{seed:04}"));
        Self {
            arm: 0,
            column: 0,
            trial: None,
            seed,
            config: config_of(folder, group, seed),
            folder: place.join(&called),
            log: place.join(format!("{called}.log")),
            until: Until::default(),
            component: None,
        }
    }

    /// Writes its config. Returns the folders to sync: the parents of its config and of its own folder.
    pub fn keep(&self, config: &str) -> Result<impl Iterator<Item = &Path>> {
        // The run's folder exists before the run, because it is what is locked.
        for folder in [self.config.parent(), Some(self.folder.as_path())].into_iter().flatten() {
            std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        }
        write_lasting(&self.config, config.as_bytes())?;
        Ok([self.config.parent(), self.folder.parent()].into_iter().flatten())
    }

    /// Returns the path of the error that ended it, if one did.
    pub fn error_file(&self) -> PathBuf {
        self.log.with_extension("error.json")
    }
}
