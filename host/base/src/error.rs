//! What went wrong, in words: one sentence that says what and where, and hints, a line each, where there is
//! something to do. Notes below it say where things are.

use std::fmt;
use std::path::Path;

use allot_allocation::shown;

use serde::{Deserialize, Serialize};

use crate::Exit;
use crate::names::listed;

/// The result of whatever can end a command.
pub type Result<T> = std::result::Result<T, Error>;

/// An error that ends a command, as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The sentence.
    pub what: String,
    /// What to do about it: one thing each, the best first.
    pub hints: Vec<String>,
    /// Where there is more to be seen.
    pub notes: Vec<String>,
}

impl Error {
    /// Something without a hint.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hints: Vec::new(), notes: Vec::new() }
    }

    /// The same, with one more hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same, with more hints.
    pub fn hints(mut self, hints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// The same, with a note where there is one.
    pub fn note(mut self, note: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(note);
        self
    }

    /// Something whose hint, if it has one, comes from a library's own words.
    pub fn told(what: impl Into<String>, hint: Option<&str>) -> Self {
        Self::new(what).hints(hint)
    }

    /// A file that could not be read, written or made.
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

    /// The exit code of a command that it ends.
    pub fn exit(&self) -> Exit {
        Exit::Error
    }

    /// Writes it to a file, for another program: JSON with `what`, `hints` and `notes`.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }

    /// Reads what [`write`](Self::write) wrote, if there is such a file and it is whole.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// All of it, as it ends a command on the screen.
    pub fn report(&self) -> String {
        let hints = self.hints.iter().map(|hint| format!("\nhint: {}", fit(hint)));
        let notes = self.notes.iter().map(|note| format!("\nnote: {}", fit(note)));
        let below: String = hints.chain(notes).collect();
        let gap = if below.is_empty() { "" } else { "\n" };
        format!("error: {}{gap}{below}", fit(&self.what))
    }
}

/// The sentence alone, as it goes into another one.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&fit(&self.what))
    }
}

/// Bytes of a sentence or a hint that are shown: a compiler's complaints are the longest.
const LONGEST: usize = 64 << 10;

/// Text that is safe for a terminal, from any source: only its first line may look like an error.
fn fit(words: &str) -> String {
    let ours = |line: &str| line.starts_with("error:") || line.starts_with("warning:");
    let lines = shown::lines(words, LONGEST);
    let lines = lines.lines().map(|line| if ours(line) { format!("  {line}") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

impl std::error::Error for Error {}

/// A number of things.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The signals that a policy wants or a run has.
pub fn signals(names: &[String]) -> String {
    match names {
        [] => "no signals".to_owned(),
        [one] => format!("the signal `{one}`"),
        _ => format!("the signals {}", listed(names.iter().map(String::as_str))),
    }
}
