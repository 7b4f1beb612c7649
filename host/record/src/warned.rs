//! What a policy warned of: lines of `log.jsonl`, beside the record.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::Path;

use serde::Deserialize;

use crate::{RecordError, Result};

/// Different warnings that are kept of a run. A policy may write numbers into each.
const MOST: usize = 100;

/// A line of `log.jsonl`, as far as it matters here.
#[derive(Deserialize)]
struct Said {
    level: String,
    text: String,
}

/// Returns the different warnings and errors that a run's policies logged, in their order; the first hundred. A last line that is cut
/// off does not count. None without the file.
///
/// # Errors
///
/// A file that can't be read, or a line that is none of the log.
pub fn warned(run: &Path) -> Result<Vec<String>> {
    let path = run.join("log.jsonl");
    let failed = |error| RecordError::file("read", &path, error);
    let mut lines = match File::open(&path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let (mut found, mut line, mut number): (Vec<String>, Vec<u8>, usize) = (Vec::new(), Vec::new(), 0);
    while found.len() < MOST {
        line.clear();
        lines.read_until(b'\n', &mut line).map_err(failed)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        number += 1;
        let said: Said = serde_json::from_slice(&line).map_err(|error| {
            let reason = allot_allocation::shown::line(&error.to_string(), allot_allocation::shown::LINE);
            RecordError::Line { path: path.clone(), number, reason }
        })?;
        if matches!(said.level.as_str(), "warn" | "error") && !found.contains(&said.text) {
            found.push(said.text);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_warnings_are_found_once_and_a_broken_line_is_told() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let write =
            |text: &str| std::fs::write(folder.path().join("log.jsonl"), text).expect("a scratch file");
        assert!(warned(folder.path()).expect("no file is no warning").is_empty());
        let line = |level: &str, text: &str| {
            format!("{{\"step\":1,\"round\":0,\"level\":\"{level}\",\"text\":\"{text}\"}}\n")
        };
        let all = line("warn", "few") + &line("info", "hello") + &line("warn", "few") + &line("error", "bad");
        write(&(all.clone() + "{\"step\":2,\"le"));
        assert_eq!(warned(folder.path()).expect("whole lines"), ["few", "bad"]);
        write(&(all + "{}\n"));
        let said = warned(folder.path()).expect_err("a line without a level").to_string();
        assert!(said.contains("line 5"), "{said}");
        write(&(0..200).map(|n| line("warn", &n.to_string())).collect::<String>());
        assert_eq!(warned(folder.path()).expect("whole lines").len(), MOST);
    }
}
