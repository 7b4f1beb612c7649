//! Cached downloads, each under its own hash.

use std::path::{Path, PathBuf};

use allot_base::write_whole;
use allot_component::sha256;

fn place(cache: &Path, digest: &str) -> PathBuf {
    cache.join("sha256").join(digest)
}

/// Returns the cached bytes with a hash. Damaged bytes are removed, to be fetched again.
pub(super) fn kept(cache: Option<&Path>, digest: &str) -> Option<Vec<u8>> {
    let path = place(cache?, digest);
    let bytes = std::fs::read(&path).ok()?;
    if sha256(&bytes) == digest {
        return Some(bytes);
    }
    let _ = std::fs::remove_file(path);
    None
}

/// Writes bytes under their hash, completely or not at all. A failure only means another download.
pub(super) fn keep(cache: Option<&Path>, bytes: &[u8]) {
    let Some(cache) = cache else { return };
    let _ = write_whole(&place(cache, &sha256(bytes)), bytes);
}
