//! The files of a folder, by name: a release is one.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

/// A folder's files, by name.
///
/// # Errors
///
/// It cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut all: Vec<_> = read.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    all.sort();
    Ok(all)
}

/// The one file in a folder with this ending.
///
/// # Errors
///
/// There is none, or there are several.
pub fn with_ending(folder: &Path, ending: &str) -> Result<PathBuf> {
    let named = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    let mut found = files(folder)?.into_iter().filter(named);
    if let (Some(one), None) = (found.next(), found.next()) {
        return Ok(one);
    }
    let what = format!("`{}` does not have one file that ends in `{ending}`", folder.display());
    Err(Error::new(what).hint("`cargo xtask dist` makes a release"))
}
