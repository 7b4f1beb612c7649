//! Errors as users see them: a message that says what went wrong and where, hints for fixing it, and notes
//! with further places to look. Each hint and note is one line.

use std::fmt;
use std::path::Path;

use allot_allocation::shown;

use serde::{Deserialize, Serialize};

use crate::Exit;
use crate::names::listed;

/// The result of an operation that can end a command.
pub type Result<T> = std::result::Result<T, Error>;

/// An error that ends a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The message.
    pub what: String,
    /// Ways to fix the error, one per entry, the most likely first.
    pub hints: Vec<String>,
    /// Places with more information.
    pub notes: Vec<String>,
}

impl Error {
    /// Returns an error without hints.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hints: Vec::new(), notes: Vec::new() }
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds several hints.
    pub fn hints(mut self, hints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Adds notes, if there are any.
    pub fn note(mut self, note: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(note);
        self
    }

    /// Returns an error whose message and optional hint come from a library.
    pub fn told(what: impl Into<String>, hint: Option<&str>) -> Self {
        Self::new(what).hints(hint)
    }

    /// Returns the error for a file that could not be read, written or created.
    pub fn file(verb: &str, path: &Path, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
            std::io::ErrorKind::NotADirectory => "part of its path is a file".to_owned(),
            std::io::ErrorKind::AlreadyExists => "there is something of that name already".to_owned(),
            std::io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
            std::io::ErrorKind::StorageFull => "the disk is full".to_owned(),
            _ => error.to_string(),
        };
        Self::new(format!("could not {verb} `{}`: {reason}", shown::path(path)))
    }

    /// Returns the exit code of a command that ends with this error.
    pub fn exit(&self) -> Exit {
        Exit::Error
    }

    /// Writes the error to a file for another program, as JSON with `what`, `hints` and `notes`.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }

    /// Reads an error written by [`write`](Self::write). `None` if the file is missing or incomplete.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Returns the error with its hints and notes, as shown on the terminal.
    pub fn report(&self) -> String {
        let hints = self.hints.iter().map(|hint| format!("\nhint: {}", fit(hint)));
        let notes = self.notes.iter().map(|note| format!("\nnote: {}", fit(note)));
        let below: String = hints.chain(notes).collect();
        let gap = if below.is_empty() { "" } else { "\n" };
        format!("error: {}{gap}{below}", fit(&self.what))
    }
}

/// Formats the message without hints, for use in another message.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&fit(&self.what))
    }
}

/// Maximum length of a message or hint, in bytes. Compiler errors are the longest.
const LONGEST: usize = 64 << 10;

/// Makes text safe for a terminal and indents lines that look like an error or warning of this program.
fn fit(words: &str) -> String {
    let ours = |line: &str| line.starts_with("error:") || line.starts_with("warning:");
    let lines = shown::lines(words, LONGEST);
    let lines = lines.lines().map(|line| if ours(line) { format!("  {line}") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

impl std::error::Error for Error {}

/// Returns a number with its noun, such as "1 step" or "2 steps".
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Returns the names of signals, as words for an error message.
pub fn signals(names: &[String]) -> String {
    match names {
        [] => "no signals".to_owned(),
        [one] => format!("the signal `{one}`"),
        _ => format!("the signals {}", listed(names.iter().map(String::as_str))),
    }
}
