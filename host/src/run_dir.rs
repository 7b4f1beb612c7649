//! A run's folder: its path, its resolved config, and the files of a failed call.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use allot_allocation::{Action, Advantage, Batch, Hold, Pick, Plan, View, shown};
use allot_base::{Error, Result, lasting};
use serde::Serialize;

use crate::stop::Stop;

/// Creates the folder of a run: the requested one, or the next free one under `runs/`.
pub fn new(out: Option<&Path>, config: &Path) -> Result<PathBuf> {
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e));
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
            Err(e) => return Err(Error::file("make", &folder, &e)),
        }
    }
    unreachable!("folder numbers do not end")
}

/// Returns the error of a run that stopped within a step, with hints. The input of a failed call is stored.
/// `draft` is the draft's source, because runs keep no copy of drafts.
pub fn stopped(stop: &Stop, folder: Option<&Path>, draft: Option<&str>) -> Error {
    let seen = match stop {
        Stop::Broken { view, plan, state, .. } => kept(folder, draft, view, state, Some(plan)),
        Stop::Policy { view, state, .. } => kept(folder, draft, view, state, None),
        _ => None,
    };
    let stack = match stop {
        Stop::Policy { fault, .. } => fault.stack(),
        _ => None,
    };
    let record = folder.map(|f| f.join("record.jsonl")).filter(|record| record.exists());
    let record = record.map(|record| format!("everything that was finished is in {}", record.display()));
    Error::new(stop.to_string()).hints(stop.hints()).note(stack).note(seen).note(record)
}

/// The stored input of a failed call.
#[derive(Serialize)]
struct Kept<'a> {
    state: String,
    view: &'a View,
    /// The number of entries to which the plan's lists were truncated, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_cut_to: Option<usize>,
    plan: Option<&'a Plan>,
}

/// The most entries of a plan's list that are stored. Replaying the call returns the others.
const KEPT: usize = 10_000;

/// Returns the plan with at most `most` entries in each list; none if nothing was truncated.
fn cut(plan: &Plan, most: usize) -> Option<Plan> {
    fn first<T: Clone>(list: &[T], most: usize) -> Vec<T> {
        list[..list.len().min(most)].to_vec()
    }
    let pick = |pick: &Pick| Pick {
        rollouts: pick.rollouts.as_ref().map(|positions| first(positions, most)),
        advantage: match &pick.advantage {
            Advantage::Given(own) => Advantage::Given(first(own, most)),
            Advantage::Among(positions) => Advantage::Among(first(positions, most)),
            other => other.clone(),
        },
        ..*pick
    };
    let hold = |hold: &Hold| Hold {
        rollouts: hold.rollouts.as_ref().map(|positions| first(positions, most)),
        ..*hold
    };
    let short = Plan {
        action: match &plan.action {
            Action::Sample(requests) => Action::Sample(first(requests, most)),
            Action::Train(batch) => Action::Train(Batch {
                picks: batch.picks.iter().take(most).map(pick).collect(),
                hold: batch.hold.iter().take(most).map(hold).collect(),
                update: batch.update,
            }),
        },
        skip: first(&plan.skip, most),
        defer: first(&plan.defer, most),
        evict: first(&plan.evict, most),
        state: Vec::new(),
        metrics: plan.metrics.iter().take(most).map(|(name, value)| (shown::name(name), *value)).collect(),
    };
    (short != Plan { state: Vec::new(), ..plan.clone() }).then_some(short)
}

/// Stores the input of a failed call, and the plan if there is one. Returns a message with the path.
fn kept(
    folder: Option<&Path>,
    draft: Option<&str>,
    view: &View,
    state: &[u8],
    plan: Option<&Plan>,
) -> Option<String> {
    let folder = folder?;
    let at = format!("{}.{}", view.step, view.round);
    let path = folder.join(format!("view-{at}.json"));
    let cut = plan.and_then(|plan| cut(plan, KEPT));
    let kept = Kept {
        state: allot_record::hex(state),
        view,
        plan_cut_to: cut.is_some().then_some(KEPT),
        plan: cut.as_ref().or(plan),
    };
    let mut file = BufWriter::new(File::create(&path).ok()?);
    serde_json::to_writer(&mut file, &kept).ok()?;
    file.flush().ok()?;
    let named = draft.map(|draft| format!(" {draft}")).unwrap_or_default();
    let again = format!("allot replay {}{named} --at {at}", folder.display());
    Some(format!("its view is in {}; to repeat the call: {again}", path.display()))
}

/// Returns a config as text.
pub fn text(config: &impl Serialize) -> Result<String> {
    toml::to_string(config).map_err(|e| Error::new(format!("could not write the config: {e}")))
}

/// Writes the resolved config, unless there is one already. The file is complete or missing, because it
/// marks a folder as a run's.
pub fn resolved(config: &impl Serialize, path: &Path) -> Result<()> {
    let text = text(config)?;
    let aside = path.with_file_name(".resolved.toml");
    let written = std::fs::write(&aside, text.as_bytes())
        .and_then(|()| File::open(&aside)?.sync_all())
        .and_then(|()| named(&aside, path));
    let _ = std::fs::remove_file(&aside);
    written.map_err(|e| Error::file("write", path, &e))?;
    // Syncs the folder's entry for the file, and the parent's entry for the folder.
    let path = allot_base::absolute(path)?;
    let mut above = path.ancestors().skip(1);
    above.next().map_or(Ok(()), lasting)?;
    // The parent may belong to another user.
    let _ = above.next().map(lasting);
    Ok(())
}

/// Renames a file unless the target exists. Without hard links, [`lock`] excludes other processes.
fn named(aside: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(aside, path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists && !path.exists() => {
            std::fs::rename(aside, path)
        }
        linked => linked,
    }
}

/// Locks a folder while the returned file is open. Fails if another process uses the folder. A folder that
/// does not exist is free.
pub fn lock(folder: &Path) -> Result<Option<File>> {
    match held(folder)? {
        Held::Here(held) => Ok(held),
        Held::Elsewhere => {
            let what = format!("another process is working in `{}`", folder.display());
            Err(Error::new(what).hint("wait for it to finish, or stop it first"))
        }
    }
}

/// Creates the folder if necessary, and locks it.
pub fn begun(folder: &Path) -> Result<Option<File>> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
    lock(folder)
}

/// Returns whether no process uses a folder. A folder that can't be read is an error: waiting for it would
/// never end.
pub fn free(folder: &Path) -> Result<bool> {
    Ok(matches!(held(folder)?, Held::Here(_)))
}

/// The holder of a folder's lock.
enum Held {
    /// This process, while the file is open; or no process, if there are no locks or no folder.
    Here(Option<File>),
    /// Another process.
    Elsewhere,
}

fn held(folder: &Path) -> Result<Held> {
    let held = match File::open(folder) {
        Ok(held) => held,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Held::Here(None)),
        Err(e) => return Err(Error::file("read", folder, &e)),
    };
    Ok(match held.try_lock() {
        Ok(()) => Held::Here(Some(held)),
        Err(std::fs::TryLockError::WouldBlock) => Held::Elsewhere,
        // Some file systems do not support locks.
        Err(std::fs::TryLockError::Error(_)) => Held::Here(None),
    })
}

/// Prints a note to the standard error.
pub fn note(words: &str) {
    let _ = writeln!(std::io::stderr(), "note: {}", shown::lines(words, shown::LINE));
}

/// Prints a policy's log line to the standard error.
pub fn tell(line: &allot_sandbox::LogLine) {
    let level = format!("{:?}", line.level).to_lowercase();
    let _ = writeln!(std::io::stderr(), "policy {level}: {}", shown::safe(&line.text));
}
