//! The built-in components: all files in `policies/prebuilt`. This module names no policy.

use include_dir::{Dir, include_dir};

static PREBUILT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/prebuilt");

/// Returns the names of the built-in policies, sorted.
pub fn names() -> Vec<&'static str> {
    let files = PREBUILT.files().map(include_dir::File::path);
    let mut names: Vec<&str> = files
        .filter(|p| p.extension().is_some_and(|e| e == "wasm"))
        .filter_map(|p| p.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// Returns the name of the policy that others are compared with.
pub fn baseline() -> &'static str {
    PREBUILT.get_file("baseline").and_then(include_dir::File::contents_utf8).unwrap_or_default().trim()
}

/// Returns the smallest built-in component, for uses where any policy will do.
pub fn simplest() -> Option<&'static str> {
    names().into_iter().min_by_key(|name| component(name).map_or(usize::MAX, <[u8]>::len))
}

/// Returns the component of a built-in policy.
pub fn component(name: &str) -> Option<&'static [u8]> {
    PREBUILT.get_file(format!("{name}.wasm")).map(include_dir::File::contents)
}

/// Returns the manifest of the built-in components, which names their sources and build tools. JSON.
pub fn manifest() -> Option<&'static [u8]> {
    PREBUILT.get_file("manifest.json").map(include_dir::File::contents)
}
