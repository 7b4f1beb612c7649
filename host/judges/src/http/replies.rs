//! A grading server's replies in a run, kept in a file in the run's folder. No request is repeated, even by
//! a resumed run. The run therefore gets the same verdicts, although the server might reply differently.
//!
//! The file is not truncated on resume, unlike a checkpoint's files: resampled answers reuse its verdicts.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::{self, Opinion};

/// Opinions by the sha256 of their request.
#[derive(Default)]
pub(super) struct Replies {
    known: HashMap<String, Opinion>,
    file: Option<(File, PathBuf)>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// The sha256 of the request.
    request: String,
    /// The server's reply.
    #[serde(default)]
    reply: Value,
    /// The opinion, in the format of a grader process.
    verdict: Value,
}

impl Replies {
    /// Opens a file and reads its replies. New ones are appended.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |verb: &str, e: &std::io::Error| Error::file(verb, path, e);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|e| failed("write", &e))?;
        let (mut known, mut line, mut whole) = (HashMap::new(), Vec::new(), 0);
        let mut reader = BufReader::new(&file);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(|e| failed("read", &e))?;
            if !line.ends_with(b"\n") {
                break;
            }
            whole += read as u64;
            let parsed: Option<Line> = serde_json::from_slice(&line).ok();
            if let Some((request, opinion)) =
                parsed.and_then(|l| Some((l.request, protocol::said(&l.verdict)?)))
            {
                known.insert(request, opinion);
            }
        }
        // Cuts off a partial last line, written when the run ended.
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0))).map_err(|e| failed("write", &e))?;
        Ok(Self { known, file: Some((file, path.to_owned())) })
    }

    /// Returns the opinion that a request got.
    pub fn get(&self, request: &str) -> Option<&Opinion> {
        self.known.get(request)
    }

    /// Stores the reply to a request.
    pub fn keep(&mut self, request: String, reply: Value, opinion: Opinion) -> Result<()> {
        if let Some((file, path)) = &mut self.file {
            let line = Line { request: request.clone(), reply, verdict: protocol::words_of(&opinion) };
            let mut text =
                serde_json::to_vec(&line).map_err(|e| Error::new(format!("could not write replies: {e}")))?;
            text.push(b'\n');
            file.write_all(&text).map_err(|e| Error::file("write", path, &e))?;
        }
        self.known.insert(request, opinion);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Judgement;

    #[test]
    fn what_was_said_is_there_again_but_for_a_line_that_was_cut() {
        let Ok(folder) = tempfile::tempdir() else { panic!("no folder") };
        let path = folder.path().join("replies.jsonl");
        let parts =
            Judgement { parts: vec![("a".to_owned(), 0.1), ("b".to_owned(), -2.0)], ..Judgement::default() };
        let all: [Opinion; 4] = [
            Ok(true.into()),
            Ok(Judgement { reward: Some(0.3), correct: Some(false), ..Judgement::default() }),
            Ok(parts),
            Err("no verdict".to_owned()),
        ];
        let Ok(mut replies) = Replies::open(&path) else { panic!("not opened") };
        for (i, opinion) in all.iter().enumerate() {
            assert_eq!(replies.keep(i.to_string(), "said".into(), opinion.clone()), Ok(()));
        }
        drop(replies);
        let Ok(whole) = std::fs::read(&path) else { panic!("no file") };
        assert!(std::fs::write(&path, [&whole[..], b"{\"request\":\"9\",\"verd"].concat()).is_ok());
        let Ok(replies) = Replies::open(&path) else { panic!("not opened") };
        for (i, opinion) in all.iter().enumerate() {
            assert_eq!(replies.get(&i.to_string()), Some(opinion), "{i}");
        }
        assert_eq!(replies.get("9"), None);
        assert_eq!(std::fs::read(&path).ok(), Some(whole));
    }
}
