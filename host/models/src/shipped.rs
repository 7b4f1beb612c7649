//! Files of the models that ship with the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use allot_base::{Error, Result, cache};
use allot_packed::Packed;

static SHIPPED: Packed = Packed::new(include_bytes!(concat!(env!("OUT_DIR"), "/shipped")));

/// Returns the names of the models that ship with the program.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = SHIPPED.names().filter_map(|name| Some(name.split_once('/')?.0)).collect();
    names.dedup();
    names
}

/// Returns the folder of a shipped model's files, if one has this name.
pub fn folder(name: &str) -> Option<Result<PathBuf>> {
    names().into_iter().find(|known| *known == name).map(unpacked)
}

/// Unpacks a shipped model into the user's cache, or else into a temporary folder that only this user can
/// access. An existing copy is compared with the shipped files, and replaced if it differs.
fn unpacked(model: &str) -> Result<PathBuf> {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for (name, bytes) in SHIPPED.folder(model) {
        hash.update(format!("{model}/{name}"));
        hash.update(bytes);
    }
    let name = format!("{model}-{}", &allot_record::hex(&hash.finalize())[..12]);
    let base = cache("models").map_or_else(private, Ok)?;
    let folder = base.join(&name);
    if holds(&folder, model) {
        return Ok(folder);
    }
    // Written to another folder and renamed, so that a reader never finds an incomplete model. That
    // folder's name is different in each process and for each call.
    let n = ASIDE.fetch_add(1, Ordering::Relaxed);
    let aside = base.join(format!(".{name}-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&aside).map_err(|e| Error::file("make", &aside, &e))?;
    for (name, bytes) in SHIPPED.folder(model) {
        let path = aside.join(name);
        std::fs::write(&path, bytes).map_err(|e| Error::file("write", &path, &e))?;
    }
    if folder.is_dir() && !holds(&folder, model) {
        std::fs::remove_dir_all(&folder).map_err(|e| Error::file("remove", &folder, &e))?;
    }
    match std::fs::rename(&aside, &folder) {
        Ok(()) => Ok(folder),
        // Another process or thread was faster.
        Err(_) if holds(&folder, model) => {
            let _ = std::fs::remove_dir_all(&aside);
            Ok(folder)
        }
        Err(e) => Err(Error::file("write", &folder, &e)),
    }
}

/// Number of temporary folders that this process has named.
static ASIDE: AtomicU32 = AtomicU32::new(0);

/// Whether a folder has exactly the files of a shipped model, byte for byte. An extra file could change how
/// the model is read.
fn holds(folder: &Path, model: &str) -> bool {
    let there = std::fs::read_dir(folder).map_or(0, Iterator::count);
    let files = || SHIPPED.folder(model);
    there == files().count()
        && files().all(|(name, bytes)| std::fs::read(folder.join(name)).is_ok_and(|there| there == bytes))
}

/// Returns a temporary folder that this user owns and that other users cannot access. It is checked,
/// because any user could have created a folder of this name.
#[cfg(unix)]
fn private() -> Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let me = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("allot-{me}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::file("make", &folder, &e));
        }
        _ => {}
    }
    let about = std::fs::symlink_metadata(&folder).map_err(|e| Error::file("read", &folder, &e))?;
    if !about.is_dir() || about.uid() != me || about.mode() & 0o077 != 0 {
        let what =
            format!("`{}` is not private to this user: others may have put files there", folder.display());
        return Err(Error::new(what).hint("remove it, or set `ALLOT_CACHE` to another folder"));
    }
    Ok(folder)
}

/// The same on systems where each user has a folder for temporary files.
#[cfg(not(unix))]
fn private() -> Result<PathBuf> {
    Ok(std::env::temp_dir().join("allot-models"))
}
