//! The built-in components: all files in `policies/prebuilt`. This module names no policy.

use allot_packed::Packed;

static PREBUILT: Packed = Packed::new(include_bytes!(concat!(env!("OUT_DIR"), "/prebuilt")));

/// Returns the names of the built-in policies, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = PREBUILT.names().filter_map(|name| name.strip_suffix(".wasm")).collect();
    names.sort_unstable();
    names
}

/// Returns the name of the policy that others are compared with.
pub fn baseline() -> &'static str {
    PREBUILT.text("baseline").unwrap_or_default().trim()
}

/// Returns the smallest built-in component, for uses where any policy will do.
pub fn simplest() -> Option<&'static str> {
    names().into_iter().min_by_key(|name| PREBUILT.size(&format!("{name}.wasm")))
}

/// Returns the component of a built-in policy.
pub fn component(name: &str) -> Option<&'static [u8]> {
    PREBUILT.file(&format!("{name}.wasm"))
}

/// Returns the manifest of the built-in components, which names their sources and build tools. JSON.
pub fn manifest() -> Option<&'static [u8]> {
    PREBUILT.file("manifest.json")
}
