//! The user's cache folder.

use std::fs::File;
use std::path::PathBuf;

/// Returns this user's cache folder for a kind of files, or `None` if no cache or home folder is set.
pub fn cache(kind: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("ALLOT_CACHE") {
        return std::path::absolute(own.join(kind)).ok();
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("allot").join(kind))
}

/// Waits while another process makes the same entry of the cache. `name` is a hash that identifies the
/// entry. Returns a locked file; the lock ends when the file is dropped. `None` if no lock could be made.
pub fn turn(name: &str) -> Option<File> {
    let folder = cache("turns")?;
    std::fs::create_dir_all(&folder).ok()?;
    let held = File::create(folder.join(name)).ok()?;
    held.lock().ok()?;
    Some(held)
}
