//! What is still there after the power went.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Makes what a folder holds last. On Unix a name is on the disk once its folder is.
pub fn lasting(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::file("write", folder, &e))
}

/// Makes a folder last with all that is in it, at any depth.
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

/// Writes a file whole or not at all, over what is there; its bytes are on the disk before it has its name. Its name lasts once
/// its folder does: [`lasting_up_to`].
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

/// Makes what these folders hold last, and all that are above them up to the one that `top` is in. That one may be somebody
/// else's: where it can't be opened, nothing is said.
pub fn lasting_up_to<'a>(folders: impl IntoIterator<Item = &'a Path>, top: &Path) -> Result<()> {
    let mut all: BTreeSet<PathBuf> = BTreeSet::from([top.to_owned()]);
    for folder in folders {
        all.extend(folder.ancestors().take_while(|above| above.starts_with(top)).map(Path::to_owned));
    }
    // From below: a name above is of no use before what is in it.
    all.iter().rev().try_for_each(|folder| lasting(folder))?;
    let top = std::path::absolute(top).map_err(|e| Error::file("find", top, &e))?;
    let _ = top.parent().map(lasting);
    Ok(())
}
