//! The identity of a grader, as visible from outside: its command, the content of the files in the command,
//! and the name and version that the grader gives. Runs whose graders differ in any of these belong to
//! different arms. A run is not resumed with another grader.

use std::path::Path;

use allot_base::{Error, Result};
use allot_record::sha256;
use serde::{Deserialize, Serialize};

use super::protocol::{Hello, Opinion};

/// Words longer than this are programs or texts, and are replaced by their hash.
const LONG: usize = 128;

/// The identity of a grader. It contains no paths, so that it is the same wherever the grader is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The program and its arguments. A word that names a file, or the file name behind its `=`, is
    /// replaced by the sha256 of the file. A long word is replaced by its own sha256.
    pub command: Vec<String>,
    /// The name and version that the grader gives.
    #[serde(flatten)]
    pub hello: Hello,
}

/// The result of a grader's check.
#[derive(Clone, Debug, PartialEq)]
pub struct GraderPreflight {
    /// The grader's identity.
    pub identity: Identity,
    /// The command's words, for messages.
    pub words: Vec<String>,
    /// Its opinion on the greeting.
    pub opinion: Opinion,
    /// Whether it compares the answers of a group. The greeting is a group of one.
    pub compares: bool,
}

impl Identity {
    /// Returns the identity of a grader with this command, which gave this name and version.
    pub fn of(words: &[String], hello: Hello) -> Result<Self> {
        let word = |(i, word): (usize, &String)| stamp(word, i == 0);
        Ok(Self { command: words.iter().enumerate().map(word).collect::<Result<_>>()?, hello })
    }

    /// Returns the difference to an earlier identity of the same words, if any, as a clause of a sentence.
    pub fn apart(&self, before: &Self, words: &[String]) -> Option<String> {
        let changed = |(i, _): &(usize, &String)| self.command.get(*i) != before.command.get(*i);
        if let Some((_, word)) = words.iter().enumerate().find(changed) {
            if word.len() > LONG {
                return Some("its script has changed".to_owned());
            }
            let name = file_in(word, false).map_or(word.as_str(), |(_, file)| file);
            return Some(format!("`{name}` has changed"));
        }
        if self.command != before.command {
            return Some("its command has changed".to_owned());
        }
        let shown = |hello: &Hello| {
            let words: Vec<&str> = hello.name.iter().chain(&hello.version).map(String::as_str).collect();
            if words.is_empty() { "nothing".to_owned() } else { format!("`{}`", words.join(" ")) }
        };
        let (now, then) = (shown(&self.hello), shown(&before.hello));
        (self.hello != before.hello).then(|| format!("it calls itself {now}, and called itself {then}"))
    }
}

/// Returns the entry of a word in the identity's command.
fn stamp(word: &str, program: bool) -> Result<String> {
    if let Some((before, file)) = file_in(word, program) {
        let path = Path::new(file);
        let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
        return Ok(format!("{before}sha256:{}", sha256(bytes)));
    }
    Ok(if word.len() > LONG { format!("sha256:{}", sha256(word)) } else { word.to_owned() })
}

/// Returns the file in a word, whole or behind its first `=`, and the text before it. A program without a
/// slash is not a file, since it is looked up in `PATH`.
fn file_in(word: &str, program: bool) -> Option<(&str, &str)> {
    let is_file = |text: &str| Path::new(text).is_file();
    if is_file(word) && (!program || word.contains(['/', '\\'])) {
        return Some(("", word));
    }
    let at = word.find('=').filter(|_| !program)? + 1;
    is_file(&word[at..]).then(|| word.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_counts_and_places_do_not() {
        let folder = tempfile::tempdir().map_err(|e| e.to_string());
        let Ok(folder) = folder else { panic!("{folder:?}") };
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            assert!(std::fs::write(&path, text).is_ok());
            path.display().to_string()
        };
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            (Identity::of(&words, Hello::default()), words)
        };
        let (a, b) = (write("a.py", "1"), write("b.py", "1"));
        let (first, words) = of(&["python3", &a, &format!("--rules={a}"), "--fast"]);
        assert_eq!(first, of(&["python3", &b, &format!("--rules={b}"), "--fast"]).0);
        let Ok(first) = first else { panic!("{first:?}") };
        assert_eq!(first.command[0], "python3");
        assert!(first.command[1].starts_with("sha256:") && first.command[1].len() == 7 + 64);
        assert!(first.command[2].starts_with("--rules=sha256:"));
        assert_ne!(Ok(&first), of(&["python3", &a, &format!("--rules={a}"), "--slow"]).0.as_ref());

        write("a.py", "2");
        let Ok(now) = Identity::of(&words, Hello::default()) else { panic!("it was readable before") };
        assert_eq!(now.apart(&first, &words), Some(format!("`{a}` has changed")));
        assert_eq!(now.apart(&now.clone(), &words), None);
        let hello = Hello { name: None, version: Some("2".to_owned()) };
        let newer = Identity { hello, ..now.clone() };
        let said = "it calls itself `2`, and called itself nothing";
        assert_eq!(newer.apart(&now, &words).as_deref(), Some(said));
    }
}
