//! What a run writes for other tools to read: numbers by step as lines of JSON and as TensorBoard events,
//! and a parquet table of every rollout.
//!
//! The record is enough to ask a policy everything again; these files are for people who look at a run.
//! Nothing here computes a number, and none of it is read by a run but to go on after its checkpoint.

pub mod metrics;
mod part;
pub mod rollouts;
pub mod tensorboard;

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use crate::trouble::{Result, Trouble};

/// A file that is not there yet: nothing of an earlier run is written over.
fn fresh(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    opened.map_err(|e| Trouble::file("write", path, &e))
}

/// A file as it was at a checkpoint: what was written after it is cut off.
pub(crate) fn reopened(path: &Path, bytes: u64) -> Result<File> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(|e| Trouble::file("write", path, &e))?;
    let cut = |file: &mut File| {
        let found = file.metadata()?.len();
        if found >= bytes {
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
        }
        Ok(found)
    };
    let found = cut(&mut file).map_err(|e: std::io::Error| Trouble::file("write", path, &e))?;
    if found < bytes {
        // Lengthening it would fill the gap with zeros, which no reader of either format takes.
        let what = format!("`{}` has {found} bytes, and the checkpoint counts on {bytes}", path.display());
        return Err(Trouble::new(what));
    }
    Ok(file)
}
