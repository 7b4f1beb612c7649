//! A run of a comparison that is to be made.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, write_lasting};

use crate::components::Copy;
use crate::until::Until;

/// The folder of a comparison's tuning: the runs of its trials.
pub fn tuning(comparison: &Path) -> PathBuf {
    comparison.join("tuning")
}

/// What kind of runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// A model is trained. A run that is stopped goes on from its last checkpoint.
    Train,
    /// Without a model, in the coin-flip world or on a bank. A run that is stopped is run anew, which takes seconds.
    Simulate,
}

/// A run that is to be made.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The arm that it belongs to, by its place: its row in a table.
    pub arm: usize,
    /// Its column in a table.
    pub column: usize,
    /// The trial that it belongs to, in a tuning.
    pub trial: Option<u32>,
    /// Its seed.
    pub seed: u64,
    /// Its config.
    pub config: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// What it says while it runs.
    pub log: PathBuf,
    /// Where it pauses.
    pub until: Until,
    /// The comparison's copy of its component, if that is one of the user's own.
    pub component: Option<Copy>,
}

/// Where the config of a run is. `group` is its arm's name, in a tuning with a trial's.
pub fn config_of(folder: &Path, group: &Path, seed: u64) -> PathBuf {
    folder.join("configs").join(group).join(format!("seed-{seed:04}.toml"))
}

impl PlannedRun {
    /// The first arm's run in a folder, in the first column; `group` is as in [`config_of`].
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

    /// Writes its config down. What is to last then: the folders that its config and its own folder are in.
    pub fn keep(&self, config: &str) -> Result<impl Iterator<Item = &Path>> {
        // A run's folder is there before the run is: that is what others can be kept from.
        for folder in [self.config.parent(), Some(self.folder.as_path())].into_iter().flatten() {
            std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        }
        write_lasting(&self.config, config.as_bytes())?;
        Ok([self.config.parent(), self.folder.parent()].into_iter().flatten())
    }

    /// The error that ended it, if one did.
    pub fn error_file(&self) -> PathBuf {
        self.log.with_extension("error.json")
    }
}
