//! What a run writes for other tools to read: numbers by step as lines of JSON and as TensorBoard events,
//! and a parquet table of every rollout.
//!
//! The record is enough to ask a policy everything again; these files are for people who look at a run.
//! Nothing here computes a number, and none of it is read by a run but to go on after its checkpoint.

mod columns;
pub mod compared;
pub mod metrics;
mod part;
pub mod rollouts;
pub mod tensorboard;

use std::fs::{File, OpenOptions};
use std::path::Path;

use crate::trouble::{Result, Trouble};

/// A file that is not there yet: nothing of an earlier run is written over.
fn fresh(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    opened.map_err(|e| Trouble::file("write", path, &e))
}
