//! The crates of others that a release contains: in the program, in the Python module's library, and in the policies that ship
//! inside both. Crates of this repository are not listed, and neither are those that only builds or tests need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use serde_json::Value;

use crate::process::{command, output};

/// Names a crate: its name and its version.
type Key = (String, String);

/// One crate.
pub struct Crate {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub licence: String,
    /// Empty if its manifest names none.
    pub repository: String,
    /// The SHA-256 of the package on crates.io, in hexadecimal.
    pub checksum: String,
    /// The folder of its source.
    pub folder: PathBuf,
}

/// What a crate contains under another licence than its manifest names: the font.
const FURTHER: [(&str, &str); 1] = [("notosans", "OFL-1.1")];

/// Returns the crates of a release for a target, sorted by name and version.
///
/// Features are those of `cargo build -p allot -p allot-python`, which a release is built with. A build of the whole workspace
/// (`--as-built`) may turn on more.
///
/// # Errors
///
/// Cargo fails; or a crate is not in `Cargo.lock` with a checksum, so it is not from crates.io.
pub fn linked(root: &Path, triple: &str) -> Result<Vec<Crate>> {
    let mut keys = tree(root, triple, &["allot".to_owned(), "allot-python".to_owned()])?;
    keys.extend(tree(root, "wasm32-unknown-unknown", &policies(root)?)?);

    let lock = root.join("Cargo.lock");
    let sums = checksums(&std::fs::read_to_string(&lock).map_err(|e| Error::file("read", &lock, &e))?);
    let mut cargo = command("cargo", ["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(cargo.current_dir(root))?)
        .map_err(|e| Error::new(format!("the output of `cargo metadata` is not JSON: {e}")))?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut crates = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let key = (text(package, "name"), text(package, "version"));
        if package["source"].is_null() || !keys.contains(&key) {
            continue;
        }
        let checksum = sums.get(&key).ok_or_else(|| {
            let what = format!("crate {} {} has no checksum in Cargo.lock", key.0, key.1);
            Error::new(what).hint("Use the version on crates.io: a release has no other crates.")
        })?;
        let folder = PathBuf::from(text(package, "manifest_path")).parent().map(Path::to_owned);
        crates.push(Crate {
            licence: expression(&key.0, &text(package, "license")),
            repository: text(package, "repository"),
            checksum: checksum.clone(),
            folder: folder.unwrap_or_default(),
            name: key.0,
            version: key.1,
        });
    }
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(crates)
}

/// Returns what these packages of the workspace link, themselves included; without procedural macros, which run in the compiler.
fn tree(root: &Path, triple: &str, packages: &[String]) -> Result<BTreeSet<Key>> {
    let mut cargo = command("cargo", ["tree", "--locked", "--edges", "normal,no-proc-macro"]);
    cargo.args(["--prefix", "none", "--format", "{p}", "--target", triple]);
    cargo.args(packages.iter().flat_map(|package| ["-p", package]));
    let key = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(output(cargo.current_dir(root))?.lines().filter_map(key).collect())
}

/// The policies that ship: each has the name of its crate.
fn policies(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("policies/prebuilt");
    let files = std::fs::read_dir(&folder).map_err(|e| Error::file("read", &folder, &e))?;
    let name = |path: PathBuf| {
        let wasm = path.extension().is_some_and(|ending| ending == "wasm");
        path.file_stem().filter(|_| wasm).map(|name| name.to_string_lossy().into_owned())
    };
    Ok(files.flatten().filter_map(|file| name(file.path())).collect())
}

/// Checksums of packages in a `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<Key, String> {
    let of = |package: &str| {
        let value = |key: &str| {
            let mut values = package.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            values.next()?.strip_suffix('"').map(str::to_owned)
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(of).collect()
}

/// A manifest's licence as an SPDX expression, with that of what else the crate contains. `/` is the older way to say OR.
fn expression(name: &str, licence: &str) -> String {
    let licence = licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    match FURTHER.iter().find(|(of, _)| *of == name) {
        Some((_, further)) => format!("({licence}) AND {further}"),
        None => licence,
    }
}

#[cfg(test)]
mod tests {
    use super::{checksums, expression};

    #[test]
    fn packages_with_a_checksum_are_read_from_a_lock() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n\n\
                    [[package]]\nname = \"a\"\nversion = \"1.0.0+x\"\nsource = \"registry\"\nchecksum = \"00ff\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".to_owned(), "1.0.0+x".to_owned())], "00ff");
    }

    #[test]
    fn licences_become_spdx_expressions() {
        assert_eq!(expression("a", "Apache-2.0 / MIT"), "Apache-2.0 OR MIT");
        assert_eq!(expression("notosans", "MIT/Apache-2.0"), "(MIT OR Apache-2.0) AND OFL-1.1");
    }
}
