//! The lines of a shadow's file, and how the file is cut back when its run resumes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use allot_allocation::{Plan, Value};
use allot_base::{Error, Result};
use allot_record::{PolicyStamp, StateChange};
use serde::{Deserialize, Serialize};

/// A line of a shadow's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Entry {
    /// The policy. The first line.
    Head {
        /// The policy.
        policy: PolicyStamp,
        /// Its effective settings.
        settings: Vec<(String, Value)>,
    },
    /// A call and its plan.
    Call(Call),
}

/// A call of a shadow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Call {
    pub step: u32,
    pub round: u32,
    /// Whether the plan equals the live policy's, without metrics.
    pub same: bool,
    /// Rollouts that its plan requests.
    pub asked: u64,
    /// Rollouts that the live plan requests.
    pub live: u64,
    /// Its plan, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The change of its state, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateChange>,
    /// Why there is no valid plan. The shadow is not called any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its log lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// Returns the shadows' files in a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::file("read", folder, &e)),
    };
    let all = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(all.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).collect())
}

/// Cuts off a shadow's file at this step and round. Returns its head and the remaining calls. Removes a
/// file whose head is incomplete.
pub(super) fn cut(path: &Path, at: (u32, u32)) -> Result<Option<(String, Vec<Call>)>> {
    let failed = |e| Error::file("read", path, &e);
    let mut lines = BufReader::new(File::open(path).map_err(failed)?);
    let (mut head, mut calls, mut bytes) = (None, Vec::new(), 0);
    let mut text = Vec::new();
    while lines.read_until(b'\n', &mut text).map_err(failed)? > 0 && text.ends_with(b"\n") {
        match serde_json::from_slice(&text) {
            Ok(Entry::Head { .. }) if head.is_none() => {
                head = Some(String::from_utf8_lossy(&text).into_owned());
            }
            Ok(Entry::Call(call)) if head.is_some() && (call.step, call.round) < at => {
                calls.push(Call { plan: None, ..call });
            }
            Ok(Entry::Call(_)) if head.is_some() => break,
            _ => {
                let what = format!("`{}` has a line that is not from a shadow", path.display());
                return Err(Error::new(what).hint("restore what was changed, or remove the file"));
            }
        }
        bytes += text.len() as u64;
        text.clear();
    }
    let Some(head) = head else {
        std::fs::remove_file(path).map_err(|e| Error::file("remove", path, &e))?;
        return Ok(None);
    };
    let file = File::options().write(true).open(path).and_then(|file| file.set_len(bytes));
    file.map_err(|e| Error::file("write", path, &e))?;
    Ok(Some((head, calls)))
}

pub(super) fn line(entry: &Entry) -> Result<String> {
    let text = serde_json::to_string(entry).map_err(|e| Error::new(format!("no line of a shadow: {e}")))?;
    Ok(text + "\n")
}
