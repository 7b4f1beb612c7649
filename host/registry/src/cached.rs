//! What was fetched, each under its own hash.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use allot_component::sha256;

fn place(cache: &Path, digest: &str) -> PathBuf {
    cache.join("sha256").join(digest)
}

/// What the cache has under a hash. What is damaged is removed, to be fetched anew.
pub(super) fn kept(cache: Option<&Path>, digest: &str) -> Option<Vec<u8>> {
    let path = place(cache?, digest);
    let bytes = std::fs::read(&path).ok()?;
    if sha256(&bytes) == digest {
        return Some(bytes);
    }
    let _ = std::fs::remove_file(path);
    None
}

/// Keeps bytes under their hash, as a whole or not at all. Where that can't be, they are fetched again.
pub(super) fn keep(cache: Option<&Path>, bytes: &[u8]) {
    static ASIDE: AtomicU64 = AtomicU64::new(0);
    let Some(cache) = cache else { return };
    let path = place(cache, &sha256(bytes));
    let ours = format!(".{}.{}", std::process::id(), ASIDE.fetch_add(1, Ordering::Relaxed));
    let aside = path.with_file_name(ours);
    let _ = std::fs::create_dir_all(cache.join("sha256"))
        .and_then(|()| std::fs::write(&aside, bytes))
        .and_then(|()| std::fs::rename(&aside, path))
        .inspect_err(|_| drop(std::fs::remove_file(&aside)));
}
