//! A model's files, and its properties that do not need the weights.
//!
//! [`find`] locates a model: one that ships with the program, a folder, a GGUF file, or one of the Hugging
//! Face [`hub`]. [`tokens`] converts between text and tokens, and [`chat`] renders the chat template. The
//! engine computes with the weights.
//!
//! ```
//! assert_eq!(allot_models::names(), ["tiny-calculator", "tiny-guess", "tiny-sums"]);
//! ```

pub mod chat;
pub mod hub;
mod shipped;
pub mod tokens;

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, did_you_mean, looks_like_a_path};
use allot_engine::cpu::Arena;
use allot_engine::model::{Gguf, Shape};
use allot_settings::hub::is_name;

pub use shipped::names;

/// Returns the folder or file of a model that a config names.
pub fn find(source: &str) -> Result<PathBuf> {
    if let Some(id) = source.strip_prefix("hub:") {
        return hub::model(id);
    }
    if let Some(folder) = shipped::folder(source) {
        return folder;
    }
    let path = Path::new(source);
    if is_name(source) && !path.exists() {
        let error = Error::new(format!("there is no file or folder `{source}`"));
        return Err(error.hint(format!("write `hub:{source}` for a model on the Hugging Face hub")));
    }
    if looks_like_a_path(source) || path.exists() {
        std::fs::metadata(path).map_err(|e| Error::file("read", path, &e))?;
        return Ok(path.to_owned());
    }
    let near = did_you_mean(source, names());
    let own = "give your own model by its path, as in `./mine`, or one on the hub as in `hub:org/name`";
    Err(Error::new(format!("no model is called `{source}`")).hint(near).hint(own))
}

/// Reads a model's shape, without its weights.
pub fn shape(path: &Path) -> Result<Shape> {
    let shape = if path.is_file() {
        Gguf::open(path).and_then(|gguf| gguf.shape())
    } else {
        Shape::read(&path.join("config.json"))
    };
    Ok(shape?)
}

/// Returns a hash of a model's weights as loaded, by which a resumed run recognizes its model.
pub fn fingerprint(arena: &Arena, weights: &[f32]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for (name, _, numbers) in arena.tensors(weights) {
        hash.update(name);
        // In chunks, to avoid a second copy of the model.
        for part in numbers.chunks(1 << 14) {
            let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
            hash.update(&bytes);
        }
    }
    allot_record::hex(&hash.finalize())
}

/// Returns a hash of the name of a server's model, whose weights are not available here.
pub fn fingerprint_of_name(name: &str) -> String {
    allot_record::sha256(format!("tinker {name}"))
}
