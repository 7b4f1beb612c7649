//! The languages of policies' and graders' projects: how a project is recognized, and its template. A
//! component's language is unknown, and not needed.

use std::path::Path;

use allot_base::{Error, Result};
use allot_component::Kind;
use clap::ValueEnum;
use include_dir::{Dir, DirEntry, include_dir};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust
    Rust,
    /// Python, by componentize-py
    Python,
    /// JavaScript, by componentize-js
    Js,
    /// C, by clang or zig
    C,
    /// Go
    Go,
}

use Language::{C, Go, Js, Python, Rust};

static RUST: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/rust");
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/python");
static JS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/js");
static C_: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/c");
static GO: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/go");
static PYTHON_GRADER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/graders/python");
static JS_GRADER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/graders/js");
static C_GRADER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/graders/c");
static GO_GRADER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/graders/go");
static RUST_GRADER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/templates/graders/rust");
static RUST_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/rust");
static PYTHON_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/python");
static JS_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/js");
static C_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/c");
static GO_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/go");

impl Language {
    /// All languages.
    pub const ALL: [Self; 5] = [Rust, Python, Js, C, Go];

    /// Returns the file that identifies a project's language. For Rust and Go it is the same for each kind;
    /// the built component has the kind.
    pub fn sign(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Rust, _) => "Cargo.toml",
            (Python, Kind::Policy) => "policy.py",
            (Python, Kind::Grader) => "grader.py",
            (Js, Kind::Policy) => "policy.js",
            (Js, Kind::Grader) => "grader.js",
            (C, Kind::Policy) => "policy.c",
            (C, Kind::Grader) => "grader.c",
            (Go, _) => "go.mod",
        }
    }

    /// Returns the language of a project's folder, and its kind as far as its files show it.
    pub fn of(folder: &Path) -> Result<(Self, Kind)> {
        let all = Kind::ALL.into_iter().flat_map(|kind| Self::ALL.map(|language| (language, kind)));
        let mut found: Vec<(Self, Kind)> = Vec::new();
        for (language, kind) in all {
            let new = found.iter().all(|(known, of)| known.sign(*of) != language.sign(kind));
            if new && folder.join(language.sign(kind)).is_file() {
                found.push((language, kind));
            }
        }
        match found[..] {
            [one] => Ok(one),
            [(one, kind), (other, its), ..] => {
                let nouns =
                    if kind == its { format!("two {}", plural(kind)) } else { "two projects".to_owned() };
                let (one, other, folder) = (one.sign(kind), other.sign(its), folder.display());
                let what = format!("`{folder}` has both `{one}` and `{other}`: {nouns} in one folder");
                Err(Error::new(what).hint("give each a folder of its own"))
            }
            [] => {
                let sign = |kind| move |language: Self| format!("`{}`", language.sign(kind));
                let signs = |kind| Self::ALL.map(sign(kind)).join(", ");
                let what = format!("`{}` is not a project of a policy or a grader", folder.display());
                let hint = format!(
                    "run `allot new NAME --lang LANGUAGE` to start one; a policy has one of {}, a grader one \
                     of {}",
                    signs(Kind::Policy),
                    signs(Kind::Grader)
                );
                Err(Error::new(what).hint(hint))
            }
        }
    }

    /// Starts a project with this name.
    pub fn start(self, kind: Kind, name: &str, folder: &Path) -> Result<()> {
        let template = match (kind, self) {
            (Kind::Policy, Rust) => &RUST,
            (Kind::Policy, Python) => &PYTHON,
            (Kind::Policy, Js) => &JS,
            (Kind::Policy, C) => &C_,
            (Kind::Policy, Go) => &GO,
            (Kind::Grader, Rust) => &RUST_GRADER,
            (Kind::Grader, Python) => &PYTHON_GRADER,
            (Kind::Grader, Js) => &JS_GRADER,
            (Kind::Grader, C) => &C_GRADER,
            (Kind::Grader, Go) => &GO_GRADER,
        };
        write(template, &[("{{name}}", name)], folder)?;
        self.sdk(&folder.join("sdk"))
    }

    /// Writes the SDK for policies and graders into a folder.
    pub fn sdk(self, folder: &Path) -> Result<()> {
        let sdk = match self {
            Rust => &RUST_SDK,
            Python => &PYTHON_SDK,
            Js => &JS_SDK,
            C => &C_SDK,
            Go => &GO_SDK,
        };
        write(sdk, &[], folder)
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Policy => "policies",
        Kind::Grader => "graders",
    }
}

/// Writes an embedded folder to disk, with each first word of `words` replaced by the second.
pub(crate) fn write(dir: &Dir<'_>, words: &[(&str, &str)], to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| Error::file("make", to, &e))?;
    for entry in dir.entries() {
        let called = entry.path().file_name().unwrap_or_default();
        let path = to.join(called);
        match entry {
            // Left by an interpreter where this program was built.
            DirEntry::Dir(_) if called == "__pycache__" || called == ".pytest_cache" => {}
            DirEntry::Dir(inner) => write(inner, words, &path)?,
            DirEntry::File(file) => {
                let bytes = match file.contents_utf8() {
                    Some(text) => {
                        let replaced = |text: String, (word, by): &(&str, &str)| text.replace(word, by);
                        words.iter().fold(text.to_owned(), replaced).into_bytes()
                    }
                    None => file.contents().to_owned(),
                };
                std::fs::write(&path, bytes).map_err(|e| Error::file("write", &path, &e))?;
            }
        }
    }
    Ok(())
}
