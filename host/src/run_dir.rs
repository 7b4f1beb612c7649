//! A run's folder: where it is, the config in force, and what is kept where a run stops.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use allot_allocation::{Action, Advantage, Batch, Hold, Pick, Plan, View, shown};
use allot_base::{Error, Result, lasting};
use serde::Serialize;

use crate::stop::Stop;

/// The folder for the record: the one asked for, or the next free one under `runs/`.
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

/// A run that stopped in the middle, in words: hints, if there is something to do; what the policy was shown is
/// kept where it failed. `draft` is what a draft was called: a run keeps none.
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

/// What is kept of a call that failed.
#[derive(Serialize)]
struct Kept<'a> {
    state: String,
    view: &'a View,
    /// Entries of the plan's lists, where they have more.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_cut_to: Option<usize>,
    plan: Option<&'a Plan>,
}

/// Entries of a list in a plan that are kept. Asking again gives the others.
const KEPT: usize = 10_000;

/// A plan with `most` entries in each list, where it has more.
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

/// Keeps what a policy was shown where it failed, and what it answered if it did; says where.
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

/// A config's text.
pub fn text(config: &impl Serialize) -> Result<String> {
    toml::to_string(config).map_err(|e| Error::new(format!("could not write the config: {e}")))
}

/// Writes down the config that is in force, over nothing that is there already. It is there as a whole or
/// not at all: it is what says that a folder has a run.
pub fn resolved(config: &impl Serialize, path: &Path) -> Result<()> {
    let text = text(config)?;
    let aside = path.with_file_name(".resolved.toml");
    let written = std::fs::write(&aside, text.as_bytes())
        .and_then(|()| File::open(&aside)?.sync_all())
        .and_then(|()| named(&aside, path));
    let _ = std::fs::remove_file(&aside);
    written.map_err(|e| Error::file("write", path, &e))?;
    // The run is in its folder, and the folder in the one above.
    let path = std::path::absolute(path).map_err(|e| Error::file("find", path, &e))?;
    let mut above = path.ancestors().skip(1);
    above.next().map_or(Ok(()), lasting)?;
    // That one may belong to another user.
    let _ = above.next().map(lasting);
    Ok(())
}

/// Gives a file its name, unless the name is taken. On file systems without hard links, [`lock`] keeps other processes away.
fn named(aside: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(aside, path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists && !path.exists() => {
            std::fs::rename(aside, path)
        }
        linked => linked,
    }
}

/// Keeps others from a folder as long as what is given back is held. Fails where another process is at work
/// in it. A folder that is not there yet is free.
pub fn lock(folder: &Path) -> Result<Option<File>> {
    match held(folder)? {
        Held::Here(held) => Ok(held),
        Held::Elsewhere => {
            let what = format!("another process is working in `{}`", folder.display());
            Err(Error::new(what).hint("wait for it to finish, or stop it first"))
        }
    }
}

/// The same of a folder that is made where it is not there.
pub fn begun(folder: &Path) -> Result<Option<File>> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
    lock(folder)
}

/// Whether no process is at work in a folder. A folder that can't be read is an error: taken for a folder in use,
/// it would be waited for in vain.
pub fn free(folder: &Path) -> Result<bool> {
    Ok(matches!(held(folder)?, Held::Here(_)))
}

/// Who has a folder.
enum Held {
    /// This process, as long as the file is open; or no process, where there are no locks or no folder.
    Here(Option<File>),
    /// Another one.
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
        // Some file systems know no locks.
        Err(std::fs::TryLockError::Error(_)) => Held::Here(None),
    })
}

/// Word of something that may pass.
pub fn note(words: &str) {
    let _ = writeln!(std::io::stderr(), "note: {}", shown::lines(words, shown::LINE));
}

/// A policy's own words.
pub fn tell(line: &allot_sandbox::LogLine) {
    let level = format!("{:?}", line.level).to_lowercase();
    let _ = writeln!(std::io::stderr(), "policy {level}: {}", shown::safe(&line.text));
}
