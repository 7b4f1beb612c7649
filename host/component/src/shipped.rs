//! The components that ship: whatever lies in `policies/prebuilt`. No name of any policy is written here.

use include_dir::{Dir, include_dir};

static PREBUILT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/prebuilt");

/// Names of the policies that ship.
pub fn names() -> Vec<&'static str> {
    let files = PREBUILT.files().map(include_dir::File::path);
    let mut names: Vec<&str> = files
        .filter(|p| p.extension().is_some_and(|e| e == "wasm"))
        .filter_map(|p| p.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// The smallest component that ships: of the simplest policy, where any will do.
pub fn simplest() -> Option<&'static str> {
    names().into_iter().min_by_key(|name| component(name).map_or(usize::MAX, <[u8]>::len))
}

/// The component of a policy that ships.
pub fn component(name: &str) -> Option<&'static [u8]> {
    PREBUILT.get_file(format!("{name}.wasm")).map(include_dir::File::contents)
}

/// What is written beside them: what they were built from, and with what. JSON.
pub fn manifest() -> Option<&'static [u8]> {
    PREBUILT.get_file("manifest.json").map(include_dir::File::contents)
}
