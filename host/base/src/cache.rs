//! The folder of a user's copies.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder in which this user's copies of a kind are kept, if there is one.
pub fn cache(kind: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("ALLOT_CACHE") {
        return std::path::absolute(own.join(kind)).ok();
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("allot").join(kind))
}

/// How many files this process has written under another name first.
static ASIDE: AtomicU64 = AtomicU64::new(0);

/// Writes a file whole or not at all, and makes its folder: each thread of each process writes under a name of its own,
/// and renames.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = format!(".{}.{}", std::process::id(), ASIDE.fetch_add(1, Ordering::Relaxed));
    let aside = path.with_file_name(aside);
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&aside, bytes))
        .and_then(|()| std::fs::rename(&aside, path))
        .inspect_err(|_| drop(std::fs::remove_file(&aside)))
}

/// Waits while another process makes the same for the cache, by a name that is a hash: what it leaves is there for both.
/// Who holds what this gives has the turn.
pub fn turn(name: &str) -> Option<File> {
    let folder = cache("turns")?;
    std::fs::create_dir_all(&folder).ok()?;
    let held = File::create(folder.join(name)).ok()?;
    held.lock().ok()?;
    Some(held)
}
