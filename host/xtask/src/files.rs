//! Files and folders, with errors that name them.

use std::path::Path;

use allot_base::{Error, Result};

/// Writes a file.
///
/// # Errors
///
/// It cannot be written.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::file("write", path, &e))
}

/// Makes a folder, and those that it is in.
///
/// # Errors
///
/// It cannot be made.
pub fn made(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))
}

/// Copies a file.
///
/// # Errors
///
/// It cannot be read, or its copy cannot be written.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).map(drop).map_err(|e| Error::file("copy", from, &e))
}
