//! `cargo xtask alone`: each crate compiled and linted by itself, its tests and benches included: with the features that it
//! asks for, and not those that its neighbours turn on when the whole workspace is built.

use std::path::Path;

use allot_base::{Error, Result};
use serde_json::Value;

use crate::process;

/// Checks each crate of the workspace, and names all that do not compile.
///
/// # Errors
///
/// A crate does not compile alone, or has a warning.
pub fn check(root: &Path) -> Result<()> {
    let mut cargo = process::command("cargo", ["metadata", "--no-deps", "--format-version=1", "--locked"]);
    let metadata = process::output(cargo.current_dir(root))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|e| Error::new(format!("`cargo metadata` printed something that is not JSON: {e}")))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<&str> = packages.filter_map(|package| package["name"].as_str()).collect();
    if names.is_empty() {
        return Err(Error::new("`cargo metadata` names no crate of this workspace"));
    }
    // By clippy, and as the whole workspace is linted: what has the same features in both is compiled once.
    let fails = |name: &&&str| {
        let args = ["clippy", "--release", "--locked", "--quiet", "--all-targets", "--package", **name];
        let mut cargo = process::command("cargo", args);
        process::run(cargo.args(["--", "-D", "warnings"]).current_dir(root)).is_err()
    };
    let failed: Vec<&str> = names.iter().filter(fails).copied().collect();
    if failed.is_empty() {
        println!("each of {} crates compiles alone, without a warning", names.len());
        return Ok(());
    }
    Err(Error::new(format!("these crates do not compile alone without a warning: {}", failed.join(", ")))
        .hint("If a feature is missing that a neighbour turns on, add it to the crate's own Cargo.toml."))
}
