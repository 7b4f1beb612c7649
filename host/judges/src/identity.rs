//! Who judges, as far as can be told from outside: the command of a judge that is a process, the content of the
//! files that it names, and what the judge says that it is. Two runs whose judges differ in any of these are of
//! different arms, and a run does not go on under another judge than its own.

use std::path::Path;

use allot_error::{Error, Result};
use allot_record::sha256;
use serde::{Deserialize, Serialize};

use super::protocol::{Hello, Opinion};

/// Words that are longer than this are programs or texts of their own, and stand there as their hash.
const LONG: usize = 128;

/// Who judges. It holds no path: a run is the same wherever its judge lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The program and its arguments. A word that is a file, or the part of one behind `=`, is the sha256 of its
    /// content; so is a long one.
    pub command: Vec<String>,
    /// What the judge says of itself.
    #[serde(flatten)]
    pub told: Hello,
}

/// What is known of a judge that has come up.
#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    /// Who it is.
    pub identity: Identity,
    /// The words that this is said of.
    pub words: Vec<String>,
    /// What it thinks of the greeting.
    pub opinion: Opinion,
}

impl Identity {
    /// Who judges by these words and says this of itself.
    pub fn of(words: &[String], told: Hello) -> Result<Self> {
        let word = |(i, word): (usize, &String)| stamp(word, i == 0);
        Ok(Self { command: words.iter().enumerate().map(word).collect::<Result<_>>()?, told })
    }

    /// In what it differs from another one of the same words, as a sentence goes on; none where it does not.
    pub fn apart(&self, before: &Self, words: &[String]) -> Option<String> {
        let changed = |(i, _): &(usize, &String)| self.command.get(*i) != before.command.get(*i);
        if let Some((_, word)) = words.iter().enumerate().find(changed) {
            let name = file_in(word, false).map_or(word.as_str(), |(_, file)| file);
            return Some(format!("`{name}` is not what it was"));
        }
        if self.command != before.command {
            return Some("its command is not what it was".to_owned());
        }
        let shown = |hello: &Hello| {
            let words: Vec<&str> = hello.name.iter().chain(&hello.version).map(String::as_str).collect();
            if words.is_empty() { "nothing".to_owned() } else { format!("`{}`", words.join(" ")) }
        };
        let (now, then) = (shown(&self.told), shown(&before.told));
        (self.told != before.told).then(|| format!("it calls itself {now}, and called itself {then}"))
    }
}

/// What stands for a word.
fn stamp(word: &str, program: bool) -> Result<String> {
    if let Some((before, file)) = file_in(word, program) {
        let path = Path::new(file);
        let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
        return Ok(format!("{before}sha256:{}", sha256(bytes)));
    }
    Ok(if word.len() > LONG { format!("sha256:{}", sha256(word)) } else { word.to_owned() })
}

/// The file that a word names, whole or behind its first `=`, and what stands before it. A program without a
/// slash is looked for elsewhere.
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
        assert_eq!(now.apart(&first, &words), Some(format!("`{a}` is not what it was")));
        assert_eq!(now.apart(&now.clone(), &words), None);
        let told = Hello { name: None, version: Some("2".to_owned()) };
        let newer = Identity { told, ..now.clone() };
        let said = "it calls itself `2`, and called itself nothing";
        assert_eq!(newer.apart(&now, &words).as_deref(), Some(said));
    }
}
