//! Writes that survive a power failure.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Syncs a folder's entries to the disk. On Unix, a file's name is durable only after its folder is synced.
pub fn lasting(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::file("write", folder, &e))
}

/// Syncs a folder and all its content, at any depth.
pub fn lasting_whole(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))? {
        let path = entry.map_err(|e| Error::file("read", folder, &e))?.path();
        if path.is_dir() {
            lasting_whole(&path)?;
        } else {
            let synced = File::options().write(true).open(&path).and_then(|file| file.sync_all());
            synced.map_err(|e| Error::file("write", &path, &e))?;
        }
    }
    lasting(folder)
}

/// Writes a file completely or not at all, replacing an existing one. Syncs the bytes before renaming. The
/// name is durable only once the folder is synced: see [`lasting_up_to`].
pub fn write_lasting(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    let aside = path.with_file_name(name);
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&aside, path)).map_err(|e| {
        let _ = std::fs::remove_file(&aside);
        Error::file("write", path, &e)
    })
}

/// Syncs these folders and all folders above them, up to the parent of `top`. That parent may belong to
/// another user, so an error there is ignored.
pub fn lasting_up_to<'a>(folders: impl IntoIterator<Item = &'a Path>, top: &Path) -> Result<()> {
    let mut all: BTreeSet<PathBuf> = BTreeSet::from([top.to_owned()]);
    for folder in folders {
        all.extend(folder.ancestors().take_while(|above| above.starts_with(top)).map(Path::to_owned));
    }
    // Start at the deepest folder: an entry is useless until its content is on the disk.
    all.iter().rev().try_for_each(|folder| lasting(folder))?;
    let top = std::path::absolute(top).map_err(|e| Error::file("find", top, &e))?;
    let _ = top.parent().map(lasting);
    Ok(())
}
