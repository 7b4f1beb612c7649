//! Files that are written completely or not at all.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Number of temporary files made by this process.
static ASIDE: AtomicU64 = AtomicU64::new(0);

/// Returns the path of a hidden temporary file beside this one, unique to the process and the call.
fn aside(path: &Path) -> PathBuf {
    let name = format!(".{}.{}", std::process::id(), ASIDE.fetch_add(1, Ordering::Relaxed));
    path.with_file_name(name)
}

/// Writes a file completely or not at all, and creates its folder. Each call writes to a temporary file
/// with a name unique to the process and the call, and renames it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    renamed(path, |file| file.write_all(bytes))
}

/// Writes a file that the user named completely or not at all: what was there stays until all is written. Follows links. A
/// device or a pipe is written as it is, as there is nothing to keep.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
    // A link in /dev leads to a file that is open, as that of the standard output.
    let is_open = path.starts_with("/dev") || path.starts_with("/proc");
    let written = match std::fs::metadata(path) {
        Ok(there) if is_open || !there.is_file() => File::create(path).and_then(|mut file| write(&mut file)),
        Ok(_) => std::fs::canonicalize(path).and_then(|path| renamed(&path, write)),
        Err(_) => renamed(path, write),
    };
    written.map_err(|e| Error::file("write", path, &e))
}

/// Writes a temporary file, and gives it this path.
fn renamed(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
    let aside = aside(path);
    let written = File::create(&aside).and_then(|mut file| write(&mut file));
    written.and_then(|()| std::fs::rename(&aside, path)).inspect_err(|_| drop(std::fs::remove_file(&aside)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("allot-whole-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder");
        folder
    }

    /// Names in a folder, sorted.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("it is there").flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_stays_as_it_was_until_all_of_another_is_written() {
        let folder = scratch("half");
        let path = folder.join("page.html");
        replace(&path, |file| file.write_all(b"one")).expect("it is written");
        let failed = replace(&path, |file| {
            file.write_all(b"half of")?;
            Err(std::io::Error::other("no space"))
        });
        assert!(failed.expect_err("it fails").what.contains("page.html"));
        assert_eq!(fs::read(&path).expect("it is there"), b"one");
        assert_eq!(names(&folder), ["page.html"]);
        fs::remove_dir_all(folder).expect("it is removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_leads_to_the_file_that_is_replaced_and_a_device_stays_one() {
        let folder = scratch("link");
        let (path, link) = (folder.join("page.html"), folder.join("link"));
        fs::write(&path, "one").expect("it is written");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        replace(&link, |file| file.write_all(b"two")).expect("it is written");
        assert!(link.is_symlink() && fs::read(&path).expect("it is there") == b"two");
        replace(Path::new("/dev/null"), |file| file.write_all(b"two")).expect("it is written");
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_dir_all(folder).expect("it is removed");
    }
}
