//! Sources named in a config or on a command line: paths and addresses.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Prefix of registry addresses.
const REGISTRY: &str = "oci:";

/// Returns whether a policy's source is a registry address.
pub fn is_registry_address(source: &str) -> bool {
    source.starts_with(REGISTRY)
}

/// Returns whether a source in a config is a path: it contains a slash or a dot, and it is neither a hub
/// address nor a registry address.
pub fn looks_like_a_path(source: &str) -> bool {
    !source.starts_with("hub:") && !is_registry_address(source) && source.contains(['/', '\\', '.'])
}

/// Returns a path from the root on.
///
/// # Errors
///
/// The path is empty, or the current folder cannot be determined.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::file("find", path, &e))
}

/// Makes a source absolute if it is a path.
///
/// # Errors
///
/// Fails if the current folder cannot be determined.
pub fn settle(source: &mut String) -> Result<()> {
    if looks_like_a_path(source) {
        *source = absolute(Path::new(source.as_str()))?.display().to_string();
    }
    Ok(())
}

/// Makes those words of a command absolute that are paths of files.
///
/// # Errors
///
/// As [`settle`].
pub fn settle_command(words: &mut [String]) -> Result<()> {
    words.iter_mut().filter(|word| Path::new(word.as_str()).is_file()).try_for_each(settle)
}
