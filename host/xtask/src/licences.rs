//! The licences of what a release is made of: which crates, under what, and the texts that they bring along.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use allot_base::{Error, Result};
use serde_json::Value;

use crate::process::{command, output};

/// What our own licence goes along with. Of a choice, as in `MIT OR GPL-2.0`, one is enough.
const GOOD: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    // Of files, which stay as they are.
    "MPL-2.0",
    "Unicode-3.0",
];

/// And, alike.
const ALSO_GOOD: [&str; 2] = ["Unlicense", "Zlib"];

/// All licences, as a text: a table of crates, and each text once with the crates that bring it.
///
/// # Errors
///
/// A crate is under a licence that a release may not have.
pub fn of(root: &Path) -> Result<String> {
    let linked = linked(root)?;
    let mut cargo = command("cargo", ["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(cargo.current_dir(root))?)
        .map_err(|e| Error::new(format!("cargo's metadata cannot be read: {e}")))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (mut table, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        if !linked.contains(&name) {
            continue;
        }
        let licence = text(package, "license");
        if !is_good(&licence) {
            let what = format!("crate {name} is under `{licence}`, which a release does not go along with");
            return Err(Error::new(what)
                .hint("leave the crate out, or add the licence in host/xtask/src/licences.rs"));
        }
        let _ = writeln!(table, "{name:<40}{licence:<52}{}", text(package, "repository"));
        for licence in texts_of(Path::new(&text(package, "manifest_path"))) {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    let mut all =
        format!("allot is under the licence in the file LICENSE. It is made with these crates:\n\n{table}");
    for (licence, crates) in texts {
        let _ = write!(all, "\n{}\n{}:\n\n{licence}\n", "-".repeat(80), crates.join(", "));
    }
    Ok(all)
}

/// What is in the program and in the Python module, as `name version`; not what only tests or builds need.
fn linked(root: &Path) -> Result<BTreeSet<String>> {
    let arguments =
        ["tree", "--locked", "-p", "allot", "-p", "allot-python", "-e", "normal", "--prefix", "none"];
    let tree = output(command("cargo", arguments).args(["--format", "{p}"]).current_dir(root))?;
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    Ok(tree.lines().filter_map(name).collect())
}

/// Whether an expression of SPDX holds with the licences that are good.
fn is_good(expression: &str) -> bool {
    // The older way to say OR.
    let words = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let one = |words: &str| GOOD.iter().chain(&ALSO_GOOD).any(|good| *good == words.trim());
    // In `(A OR B) AND C` every part of an AND is looked at, whatever brackets there are: too strict at worst.
    let and = words.split(" AND ").all(|part| part.split(" OR ").any(one));
    !words.trim().is_empty() && and
}

/// The texts of licences beside a crate's manifest.
fn texts_of(manifest: &Path) -> Vec<String> {
    let Some(files) = manifest.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let is_one = |name: &str| {
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|begin| name.to_uppercase().starts_with(begin))
    };
    let paths = files.flatten().map(|file| file.path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(is_one)).collect();
    paths.sort();
    // Of one text there are many layouts.
    let tidy =
        |text: String| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned();
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).map(tidy).collect()
}

#[cfg(test)]
mod tests {
    use super::is_good;

    #[test]
    fn a_choice_needs_one_good_licence_and_a_sum_all() {
        assert!(
            is_good("MIT OR GPL-2.0")
                && is_good("MIT/Apache-2.0")
                && is_good("(MIT OR Apache-2.0) AND Unicode-3.0")
        );
        assert!(!is_good("GPL-3.0") && !is_good("MIT AND GPL-3.0") && !is_good(""));
    }
}
