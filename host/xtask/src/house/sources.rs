//! The Rust files of the repository by crate, as text and as tokens, and what is counted in them.
//!
//! A file belongs to the nearest folder above it that has a `Cargo.toml`, or else to the top folder it is in (`tests`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The most lines a function may have, from `fn` to its closing brace.
pub const FUNCTION: usize = 60;

/// One file.
pub struct Source {
    /// Its path from the repository's root.
    pub path: PathBuf,
    text: String,
    /// Its tokens, without comments.
    pub tokens: TokenStream,
}

/// A function that is too long.
pub struct Long {
    /// Its name.
    pub name: String,
    /// The line of its `fn`.
    pub line: usize,
    /// How many lines it has.
    pub lines: usize,
}

/// All files by crate; a crate is named by its folder.
///
/// # Errors
///
/// A folder or file cannot be read, or a file is not made of tokens of Rust.
pub fn read(root: &Path) -> Result<BTreeMap<String, Vec<Source>>> {
    let (mut all, mut folders) = (BTreeMap::<String, Vec<Source>>::new(), vec![(PathBuf::new(), None)]);
    while let Some((folder, owner)) = folders.pop() {
        let failed = |e: std::io::Error| Error::file("read", &root.join(&folder), &e);
        let here = !folder.as_os_str().is_empty();
        let is_crate = here && root.join(&folder).join("Cargo.toml").is_file();
        let owner = if is_crate { Some(folder.clone()) } else { owner.or(here.then(|| folder.clone())) };
        for entry in std::fs::read_dir(root.join(&folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
            let path = folder.join(&name);
            let name = name.to_string_lossy();
            let is_built =
                name.starts_with('.') || ["target", "node_modules", "__pycache__"].contains(&&*name);
            if kind.is_dir() && !is_built {
                folders.push((path, owner.clone()));
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
                let owner = owner.as_deref().map_or_else(|| ".".into(), Path::to_string_lossy).into_owned();
                all.entry(owner).or_default().push(Source::read(root, path)?);
            }
        }
    }
    for sources in all.values_mut() {
        sources.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(all)
}

impl Source {
    fn read(root: &Path, path: PathBuf) -> Result<Self> {
        let full = root.join(&path);
        let text = std::fs::read_to_string(&full).map_err(|e| Error::file("read", &full, &e))?;
        let tokens = text.parse().map_err(|e: proc_macro2::LexError| {
            Error::new(format!("`{}` line {}: {e}", path.display(), e.span().start().line))
        })?;
        Ok(Self { path, text, tokens })
    }

    /// How many lines it has.
    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// How often it has one of these words, in comments too, in any case.
    pub fn count(&self, words: &[&str]) -> usize {
        let all = self.text.split(|c: char| !c.is_alphanumeric() && c != '_');
        all.filter(|word| words.iter().any(|other| word.eq_ignore_ascii_case(other))).count()
    }

    /// Its functions with more than [`FUNCTION`] lines.
    pub fn long(&self) -> Vec<Long> {
        let mut all = Vec::new();
        find_long(self.tokens.clone(), &mut all);
        all
    }
}

/// Finds long functions in these tokens and those that they enclose.
fn find_long(tokens: TokenStream, all: &mut Vec<Long>) {
    // The function whose body has not begun yet.
    let (mut open, mut is_fn) = (None, false);
    for token in tokens {
        match &token {
            TokenTree::Ident(name) if is_fn => open = Some((name.to_string(), name.span().start().line)),
            TokenTree::Punct(end) if end.as_char() == ';' => open = None,
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace
                    && let Some((name, line)) = open.take()
                {
                    let lines = group.span_close().end().line + 1 - line;
                    if lines > FUNCTION {
                        all.push(Long { name, line, lines });
                    }
                }
                find_long(group.stream(), all);
            }
            _ => {}
        }
        is_fn = matches!(&token, TokenTree::Ident(word) if word == "fn");
    }
}
