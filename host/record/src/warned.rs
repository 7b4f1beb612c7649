//! What a policy warned of: lines of `log.jsonl`, beside the record.

use std::path::Path;

use serde::Deserialize;

use crate::Result;
use crate::appended::whole_lines;

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
    let (path, mut found) = (run.join("log.jsonl"), Vec::new());
    for said in whole_lines::<Said>(&path)? {
        let Said { level, text } = said?;
        if matches!(level.as_str(), "warn" | "error") && !found.contains(&text) {
            found.push(text);
        }
        if found.len() == MOST {
            break;
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
