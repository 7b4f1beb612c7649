//! The languages that a policy's project can be in: what such a project looks like, and what it is started
//! from. Of a component nobody can tell any more, and nobody asks.

use std::path::Path;

use allot_error::{Error, Result};
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
static RUST_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/rust");
static PYTHON_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/python");
static JS_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/js");
static C_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/c");
static GO_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies/sdk/go");

impl Language {
    /// All of them.
    pub const ALL: [Self; 5] = [Rust, Python, Js, C, Go];

    /// The file by which a project is known to be in it.
    pub fn sign(self) -> &'static str {
        match self {
            Rust => "Cargo.toml",
            Python => "policy.py",
            Js => "policy.js",
            C => "policy.c",
            Go => "go.mod",
        }
    }

    /// The language of a project's folder.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut found = Self::ALL.into_iter().filter(|language| folder.join(language.sign()).is_file());
        let signs = Self::ALL.map(|language| format!("`{}`", language.sign())).join(", ");
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(other)) => {
                let (one, other, folder) = (one.sign(), other.sign(), folder.display());
                let what = format!("`{folder}` has both `{one}` and `{other}`: two policies in one folder");
                Err(Error::new(what).hint("give each a folder of its own"))
            }
            (None, _) => {
                let what = format!("`{}` is no policy's project", folder.display());
                let hint =
                    format!("it would have one of {signs}; `allot new NAME --lang LANGUAGE` starts one");
                Err(Error::new(what).hint(hint))
            }
        }
    }

    /// What a project of this name starts with.
    pub fn start(self, name: &str, folder: &Path) -> Result<()> {
        let template = match self {
            Rust => &RUST,
            Python => &PYTHON,
            Js => &JS,
            C => &C_,
            Go => &GO,
        };
        write(template, name, folder)?;
        self.sdk(&folder.join("sdk"))
    }

    /// What policies are written over, into a folder.
    pub fn sdk(self, folder: &Path) -> Result<()> {
        let sdk = match self {
            Rust => &RUST_SDK,
            Python => &PYTHON_SDK,
            Js => &JS_SDK,
            C => &C_SDK,
            Go => &GO_SDK,
        };
        write(sdk, "", folder)
    }
}

/// Writes a folder of the program's own to the disk, `{{name}}` replaced.
fn write(dir: &Dir<'_>, name: &str, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| Error::file("make", to, &e))?;
    for entry in dir.entries() {
        let called = entry.path().file_name().unwrap_or_default();
        let path = to.join(called);
        match entry {
            // What an interpreter left where this program was built.
            DirEntry::Dir(_) if called == "__pycache__" || called == ".pytest_cache" => {}
            DirEntry::Dir(inner) => write(inner, name, &path)?,
            DirEntry::File(file) => {
                let bytes = match file.contents_utf8() {
                    Some(text) if !name.is_empty() => text.replace("{{name}}", name).into_bytes(),
                    _ => file.contents().to_owned(),
                };
                std::fs::write(&path, bytes).map_err(|e| Error::file("write", &path, &e))?;
            }
        }
    }
    Ok(())
}
