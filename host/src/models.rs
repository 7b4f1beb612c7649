//! Where a model's files are: those that ship with the program, a folder, a GGUF file, or the hub.

use std::path::{Path, PathBuf};

use allot_engine::cpu::Arena;
use allot_engine::model::{Gguf, Shape};
use allot_error::{Result, Trouble, did_you_mean};
use include_dir::{Dir, include_dir};

use crate::config::looks_like_a_path;
use crate::hub;

static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/models");

/// Names of the models that ship.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = SHIPPED.dirs().filter_map(|d| d.path().to_str()).collect();
    names.sort_unstable();
    names
}

/// The folder or file of a model, as a config names it.
pub fn find(source: &str) -> Result<PathBuf> {
    if let Some(id) = source.strip_prefix("hub:") {
        return hub::model(id);
    }
    if let Some(dir) = SHIPPED.get_dir(source) {
        return unpacked(dir);
    }
    let path = Path::new(source);
    if is_hub_name(source) && !path.exists() {
        let trouble = Trouble::new(format!("there is no file or folder `{source}`"));
        return Err(trouble.hint(format!("a model of the Hugging Face hub is `hub:{source}`")));
    }
    if looks_like_a_path(source) || path.exists() {
        std::fs::metadata(path).map_err(|e| Trouble::file("read", path, &e))?;
        return Ok(path.to_owned());
    }
    let near = did_you_mean(source, names());
    let own = "a model of your own is given by its path, as in `./mine`, one of the hub as in `hub:org/name`";
    Err(Trouble::new(format!("no model is called `{source}`")).hint(format!("{near}\nhint: {own}")))
}

/// Whether a name is such as models on the hub have: an owner, a slash and a name.
pub fn is_hub_name(source: &str) -> bool {
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
    };
    let file = Path::new(source).extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    !file && source.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

/// A model's shape, without its weights.
pub fn shape(path: &Path) -> Result<Shape> {
    let shape = if path.is_file() {
        Gguf::open(path).and_then(|gguf| gguf.shape())
    } else {
        Shape::read(&path.join("config.json"))
    };
    Ok(shape?)
}

/// A hash of a model's weights as they were loaded, by which a resumed run knows its own.
pub fn fingerprint(arena: &Arena, weights: &[f32]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for (name, _, numbers) in arena.tensors(weights) {
        hash.update(name);
        // In parts, so that no second copy of a model is made.
        for part in numbers.chunks(1 << 14) {
            let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
            hash.update(&bytes);
        }
    }
    allot_record::hex(&hash.finalize())
}

/// The same of a server's model, whose weights nobody here sees: of its name.
pub fn fingerprint_of_name(name: &str) -> String {
    allot_sandbox::sha256(format!("tinker {name}"))
}

/// A shipped model as files: in the user's cache, or else in a folder for temporary files that is this user's
/// alone. What lies there is held against what ships, and is written anew where it differs.
fn unpacked(dir: &Dir<'_>) -> Result<PathBuf> {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for file in dir.files() {
        hash.update(file.path().to_string_lossy().as_bytes());
        hash.update(file.contents());
    }
    let name = format!("{}-{}", dir.path().display(), &allot_record::hex(&hash.finalize())[..12]);
    let base = crate::source::cache("models").map_or_else(private, Ok)?;
    let folder = base.join(&name);
    if holds(&folder, dir) {
        return Ok(folder);
    }
    // Written aside and renamed, so that no half of it is ever found.
    let aside = base.join(format!(".{name}-{}", std::process::id()));
    std::fs::create_dir_all(&aside).map_err(|e| Trouble::file("make", &aside, &e))?;
    for file in dir.files() {
        let path = aside.join(file.path().file_name().unwrap_or_default());
        std::fs::write(&path, file.contents()).map_err(|e| Trouble::file("write", &path, &e))?;
    }
    if folder.is_dir() && !holds(&folder, dir) {
        std::fs::remove_dir_all(&folder).map_err(|e| Trouble::file("remove", &folder, &e))?;
    }
    match std::fs::rename(&aside, &folder) {
        Ok(()) => Ok(folder),
        // Another process was first.
        Err(_) if holds(&folder, dir) => {
            let _ = std::fs::remove_dir_all(&aside);
            Ok(folder)
        }
        Err(e) => Err(Trouble::file("write", &folder, &e)),
    }
}

/// Whether a folder has the files of a shipped model, byte for byte, and no others: one more could change how the
/// model is read.
fn holds(folder: &Path, dir: &Dir<'_>) -> bool {
    let there = std::fs::read_dir(folder).map_or(0, Iterator::count);
    let same = |file: &include_dir::File<'_>| {
        let place = folder.join(file.path().file_name().unwrap_or_default());
        std::fs::read(place).is_ok_and(|bytes| bytes == file.contents())
    };
    there == dir.files().count() && dir.files().all(same)
}

/// A folder among the temporary ones that this user owns and nobody else may look into: anybody may have made one of
/// its name.
#[cfg(unix)]
fn private() -> Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let me = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("allot-{me}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Trouble::file("make", &folder, &e));
        }
        _ => {}
    }
    let about = std::fs::symlink_metadata(&folder).map_err(|e| Trouble::file("read", &folder, &e))?;
    if !about.is_dir() || about.uid() != me || about.mode() & 0o077 != 0 {
        let what = format!(
            "`{}` is no folder of this user's alone: others may have put files there",
            folder.display()
        );
        return Err(Trouble::new(what).hint("remove it, or name a folder for what is kept in `ALLOT_CACHE`"));
    }
    Ok(folder)
}

/// The same where such folders are a user's own by themselves.
#[cfg(not(unix))]
fn private() -> Result<PathBuf> {
    Ok(std::env::temp_dir().join("allot-models"))
}
