//! Where a model's files are: those that ship with the program, a folder, a GGUF file, or the hub.

use std::path::{Path, PathBuf};

use allot_engine::cpu::Arena;
use allot_engine::model::{Gguf, Shape};
use include_dir::{Dir, include_dir};

use crate::config::looks_like_a_path;
use crate::hub;
use crate::trouble::{Result, Trouble, did_you_mean};

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
    if looks_like_a_path(source) || path.exists() {
        std::fs::metadata(path).map_err(|e| Trouble::file("read", path, &e))?;
        return Ok(path.to_owned());
    }
    let near = did_you_mean(source, names());
    let own = "a model of your own is given by its path, as in `./mine`, one of the hub as in `hub:org/name`";
    Err(Trouble::new(format!("no model is called `{source}`")).hint(format!("{near}\nhint: {own}")))
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

/// A shipped model as files: in the user's cache, or else in a folder for temporary files.
fn unpacked(dir: &Dir<'_>) -> Result<PathBuf> {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for file in dir.files() {
        hash.update(file.path().to_string_lossy().as_bytes());
        hash.update(file.contents());
    }
    let name = format!("{}-{}", dir.path().display(), &allot_record::hex(&hash.finalize())[..12]);
    let base = crate::source::cache("models").unwrap_or_else(|| std::env::temp_dir().join("allot-models"));
    let folder = base.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    // Written aside and renamed, so that no half of it is ever found.
    let aside = base.join(format!(".{name}-{}", std::process::id()));
    std::fs::create_dir_all(&aside).map_err(|e| Trouble::file("make", &aside, &e))?;
    for file in dir.files() {
        let path = aside.join(file.path().file_name().unwrap_or_default());
        std::fs::write(&path, file.contents()).map_err(|e| Trouble::file("write", &path, &e))?;
    }
    match std::fs::rename(&aside, &folder) {
        Ok(()) => Ok(folder),
        // Another process was first.
        Err(_) if folder.is_dir() => {
            let _ = std::fs::remove_dir_all(&aside);
            Ok(folder)
        }
        Err(e) => Err(Trouble::file("write", &folder, &e)),
    }
}
