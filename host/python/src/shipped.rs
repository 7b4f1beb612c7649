//! The policies that ship with the wheel: whatever lies in `policies/prebuilt`, as in the program. No name
//! of any policy is written here.

use std::path::Path;

use include_dir::{Dir, include_dir};
use pyo3::prelude::*;

use crate::trouble::{Result, Trouble};

static PREBUILT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/prebuilt");

/// The names of the policies that ship.
#[pyfunction]
pub fn shipped() -> Vec<&'static str> {
    let files = PREBUILT.files().map(include_dir::File::path);
    let mut names: Vec<&str> = files
        .filter(|p| p.extension().is_some_and(|e| e == "wasm"))
        .filter_map(|p| p.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// A component's bytes, by the name of one that ships or by a path. Anything with a slash or a file ending
/// is a path.
pub fn bytes(source: &str) -> Result<Vec<u8>> {
    let path = Path::new(source);
    if source.contains(['/', '\\']) || path.extension().is_some() {
        return std::fs::read(path).map_err(|e| Trouble::file("read", path, &e));
    }
    if let Some(file) = PREBUILT.get_file(format!("{source}.wasm")) {
        return Ok(file.contents().to_owned());
    }
    let near = did_you_mean(source, &shipped());
    let own = "a component of your own is given by its path, as in `./mine.wasm`";
    Err(Trouble::new(format!("no policy is called `{source}`")).hint(format!("{near}\nhint: {own}")))
}

/// A hint that names the nearest known name, or all of them.
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    let scored = known.iter().map(|k| (strsim::jaro_winkler(name, k), k));
    let near = scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, near)) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => {
            format!("known are {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", "))
        }
    }
}
