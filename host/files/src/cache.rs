//! The folder of a user's copies.

use std::path::PathBuf;

/// The folder in which this user's copies of a kind are kept, if there is one.
pub fn cache(kind: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("ALLOT_CACHE") {
        return std::path::absolute(own.join(kind)).ok();
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("allot").join(kind))
}
