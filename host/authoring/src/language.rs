//! The languages of policies' and graders' projects: how a project is recognized, and its template. A
//! component's language is unknown, and not needed.

use std::path::Path;

use allot_base::{Error, Result};
use allot_component::Kind;
use allot_packed::Packed;
use clap::ValueEnum;

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

/// Templates, SDKs and the sources of the shipped policies.
pub(crate) static PROJECTS: Packed = Packed::new(include_bytes!(concat!(env!("OUT_DIR"), "/projects")));

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
        let kinds = match kind {
            Kind::Policy => "templates",
            Kind::Grader => "templates/graders",
        };
        write(&format!("{kinds}/{}", self.folder()), &[("{{name}}", name)], folder)?;
        self.sdk(&folder.join("sdk"))
    }

    /// Writes the SDK for policies and graders into a folder.
    pub fn sdk(self, folder: &Path) -> Result<()> {
        write(&format!("sdk/{}", self.folder()), &[], folder)
    }

    /// Returns the name of the folders of its templates and its SDK.
    fn folder(self) -> &'static str {
        match self {
            Rust => "rust",
            Python => "python",
            Js => "js",
            C => "c",
            Go => "go",
        }
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Policy => "policies",
        Kind::Grader => "graders",
    }
}

/// Writes a folder of [`PROJECTS`] to disk, with each first word of `words` replaced by the second.
pub(crate) fn write(from: &str, words: &[(&str, &str)], to: &Path) -> Result<()> {
    let mut files = PROJECTS.folder(from).peekable();
    if files.peek().is_none() {
        return Err(Error::new(format!("this program has no `{from}`")));
    }
    for (name, bytes) in files {
        let path = to.join(name);
        let folder = path.parent().unwrap_or(to);
        std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        let bytes = match str::from_utf8(bytes) {
            Ok(text) => {
                let replaced = |text: String, (word, by): &(&str, &str)| text.replace(word, by);
                words.iter().fold(text.to_owned(), replaced).into_bytes()
            }
            Err(_) => bytes.to_owned(),
        };
        std::fs::write(&path, bytes).map_err(|e| Error::file("write", &path, &e))?;
    }
    Ok(())
}
