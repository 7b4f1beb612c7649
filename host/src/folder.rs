//! A run's folder: where it is, the config in force, and what is kept where a run stops.

use std::fs::File;
use std::path::{Path, PathBuf};

use allot_allocation::{Plan, View};
use serde::Serialize;

use crate::step::Stop;
use crate::trouble::{Result, Trouble};

/// The folder for the record: the one asked for, or the next free one under `runs/`.
pub fn new(out: Option<&Path>, config: &Path) -> Result<PathBuf> {
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e));
    if let Some(out) = out {
        make(out)?;
        return Ok(out.to_owned());
    }
    let stem = config.file_stem().and_then(|s| s.to_str()).unwrap_or("run");
    make(Path::new("runs"))?;
    for n in 1.. {
        let folder = PathBuf::from(format!("runs/{stem}-{n:03}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Trouble::file("make", &folder, &e)),
        }
    }
    unreachable!("folder numbers do not end")
}

/// A run that stopped in the middle, in words; what the policy was shown is kept where it failed.
pub fn stopped(stop: &Stop, folder: Option<&Path>) -> Trouble {
    let trouble = Trouble::new(stop.to_string());
    let mut hints: Vec<String> = Vec::new();
    match stop {
        Stop::Broken { broken, view, plan, state } => {
            hints.push(broken.rule.hint().to_owned());
            hints.extend(kept(folder, view, state, Some(plan)));
        }
        Stop::Policy { fault, view, state, .. } => {
            hints.extend(fault.hints());
            hints.extend(kept(folder, view, state, None));
        }
        Stop::Reward(trouble) | Stop::Record(trouble) => hints.extend(trouble.hint.clone()),
        Stop::Refused { .. } => {
            let what = "lower `optimizer.learning_rate`, and begin from the `model` folder of a checkpoint";
            hints.push(what.to_owned());
        }
        Stop::Engine { error, .. } => hints.extend(error.hint().map(str::to_owned)),
        Stop::Books { .. } => {}
    }
    if let Some(folder) = folder {
        hints.push(format!("all that was finished is in {}", folder.join("record.jsonl").display()));
    }
    if hints.is_empty() { trouble } else { trouble.hint(hints.join("\nhint: ")) }
}

/// Keeps what a policy was shown where it failed, and what it answered if it did; says where.
fn kept(folder: Option<&Path>, view: &View, state: &[u8], plan: Option<&Plan>) -> Option<String> {
    let folder = folder?;
    let at = format!("{}.{}", view.step, view.round);
    let path = folder.join(format!("view-{at}.json"));
    let kept = serde_json::json!({ "state": allot_record::hex(state), "view": view, "plan": plan });
    std::fs::write(&path, kept.to_string()).ok()?;
    let again = format!("allot replay {} --at {at}", folder.display());
    Some(format!("what it was shown is in {}; to ask it that again: {again}", path.display()))
}

/// A config's text.
pub fn text(config: &impl Serialize) -> Result<String> {
    toml::to_string(config).map_err(|e| Trouble::new(format!("could not write the config: {e}")))
}

/// Writes down the config that is in force, over nothing that is there already. It is there as a whole or
/// not at all: it is what says that a folder has a run.
pub fn resolved(config: &impl Serialize, path: &Path) -> Result<()> {
    let text = text(config)?;
    let aside = path.with_file_name(".resolved.toml");
    let written = std::fs::write(&aside, text.as_bytes())
        .and_then(|()| File::open(&aside)?.sync_all())
        .and_then(|()| std::fs::hard_link(&aside, path));
    let _ = std::fs::remove_file(&aside);
    written.map_err(|e| Trouble::file("write", path, &e))
}

/// Keeps others from a folder as long as what is given back is held. Fails where another process is at work
/// in it. A folder that is not there yet is nobody's.
pub fn lock(folder: &Path) -> Result<Option<File>> {
    let held = match File::open(folder) {
        Ok(held) => held,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Trouble::file("read", folder, &e)),
    };
    match held.try_lock() {
        Ok(()) => Ok(Some(held)),
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!("another process is at work in `{}`", folder.display());
            Err(Trouble::new(what).hint("wait for it, or stop it first"))
        }
        // Some file systems know no locks.
        Err(std::fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether no process is at work in a folder.
pub fn free(folder: &Path) -> bool {
    lock(folder).is_ok()
}

/// Word of something that may pass.
pub fn note(words: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "note: {words}");
}

/// A policy's own words.
pub fn tell(line: &allot_sandbox::Line) {
    use std::io::Write as _;
    let _ =
        writeln!(std::io::stderr(), "policy {}: {}", format!("{:?}", line.level).to_lowercase(), line.text);
}
