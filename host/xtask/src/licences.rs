//! The licences of the crates in a release: which crate is under which, and the texts that the crates bring along.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use allot_base::{Error, Result};

use crate::crates::Crate;

/// What our own licence goes along with. Of a choice, as in `MIT OR GPL-2.0`, one is enough.
const GOOD: [&str; 13] = [
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
    // Of a font, within a program.
    "OFL-1.1",
    "Unicode-3.0",
];

/// And, alike.
const ALSO_GOOD: [&str; 2] = ["Unlicense", "Zlib"];

/// Folders of a crate with code that no release contains.
const UNUSED: [&str; 4] = ["benches", "examples", "test", "tests"];

/// Returns all licences as a text: a table of crates, and each text once with the crates that bring it.
///
/// # Errors
///
/// A crate is under a licence that a release may not have.
pub fn of(crates: &[Crate]) -> Result<String> {
    let (mut table, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    let mut without = Vec::new();
    for one in crates {
        let (name, licence) = (format!("{} {}", one.name, one.version), &one.licence);
        if !is_good(licence) {
            let what = format!("crate {name} is under `{licence}`, which a release does not go along with");
            return Err(Error::new(what)
                .hint("leave the crate out, or add the licence in host/xtask/src/licences.rs"));
        }
        let _ = writeln!(table, "{name:<40}{licence:<52}{}", one.repository);
        let brought = texts_in(&one.folder);
        if brought.is_empty() {
            without.push(name.clone());
        }
        for text in brought {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut all =
        format!("allot is under the licence in the file LICENSE. It is made with these crates:\n\n{table}");
    if !without.is_empty() {
        let _ = write!(all, "\nThese bring no text of their licence: {}.\n", without.join(", "));
    }
    for (text, crates) in texts {
        let _ = write!(all, "\n{}\n{}:\n\n{text}\n", "-".repeat(80), crates.join(", "));
    }
    Ok(all)
}

/// Whether an expression of SPDX holds with the licences that are good.
fn is_good(expression: &str) -> bool {
    let words = expression.replace(['(', ')'], " ");
    let one = |words: &str| GOOD.iter().chain(&ALSO_GOOD).any(|good| *good == words.trim());
    // In `(A OR B) AND C` every part of an AND is looked at, whatever brackets there are: too strict at worst.
    let and = words.split(" AND ").all(|part| part.split(" OR ").any(one));
    !words.trim().is_empty() && and
}

/// The texts of licences in a crate: its own, and those of C code, data and fonts in its folders.
fn texts_in(folder: &Path) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (file.path(), file.file_name().to_string_lossy().to_uppercase());
        if path.is_dir() {
            if !UNUSED.iter().any(|unused| name == unused.to_uppercase()) {
                texts.extend(texts_in(&path));
            }
            continue;
        }
        let begins = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|begin| name.starts_with(begin));
        let code = path.extension().is_some_and(|ending| ending == "rs");
        if let (true, Ok(text)) = (begins && !code, std::fs::read_to_string(&path)) {
            // Of one text there are many layouts.
            let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            texts.insert(lines.trim().to_owned());
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{is_good, texts_in};

    #[test]
    fn a_choice_needs_one_good_licence_and_a_sum_all() {
        assert!(is_good("MIT OR GPL-2.0") && is_good("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_good("GPL-3.0") && !is_good("MIT AND GPL-3.0") && !is_good(""));
    }

    #[test]
    fn texts_of_vendored_code_count_and_those_of_tests_and_sources_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["LICENSE", "c/deep/COPYING", "tests/LICENSE-FONT", "src/licenses.rs", "src/lib.rs"];
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{file} \n\n")).unwrap();
        }
        let texts: Vec<String> = texts_in(folder.path()).into_iter().collect();
        assert_eq!(texts, ["LICENSE", "c/deep/COPYING"]);
    }
}
