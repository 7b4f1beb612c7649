//! Resuming a run: whether it is finished, which checkpoint it resumes from, and whether its components and
//! data are unchanged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{self, Checkpoints, Manifest};
use crate::prepared::Prepared;
use crate::recorder::{self, RunIdentity};
use crate::screen::Screen;
use crate::summary::Totals;
use crate::swap::Change;
use allot_allocation::Column;
use allot_base::{Error, Result, signals};
use allot_config::train::TrainConfig;
use allot_judges::identity::Identity;
use allot_record::{End, Head, Line, PolicyStamp, Reader};
use serde::Deserialize as _;
use serde_json::Value;

/// A finished run.
pub struct Over {
    /// The policy at its end.
    policy: PolicyStamp,
    seed: u64,
    totals: Totals,
    end: End,
}

impl Over {
    /// Shows its closing table again.
    pub fn show(&self, run: &Path, json: bool, screen: &mut Screen<'_>) {
        screen.tell(format_args!("the run in {} is over", run.display()));
        if json {
            let accuracies = self.totals.accuracies_json(&self.end);
            let (name, sha256) = (&self.policy.name, &self.policy.sha256);
            screen.say(self.totals.json(&self.end, name, sha256, self.seed, accuracies));
        } else {
            self.totals.show(&self.end, self.totals.accuracies(&self.end), screen);
        }
    }
}

/// Returns the result of a run that is finished and completely on disk.
pub fn over(run: &Path, config: &TrainConfig) -> Result<Option<Over>> {
    let Some(over) = ended(run) else { return Ok(None) };
    let checkpoints = Checkpoints::of(run, config.checkpoint.keep);
    // A run that was stopped while writing its only checkpoint has to write it.
    let interrupted = checkpoints.interrupted()?;
    match checkpoints.newest()? {
        (Some((checkpoint, _)), _) => {
            let state = checkpoint::state(&checkpoint)?;
            let record = run.join("record.jsonl");
            let bytes = std::fs::metadata(&record).map_err(|e| Error::file("read", &record, &e))?.len();
            // The record's end is written before the last checkpoint.
            if state.record.bytes != bytes {
                return Ok(None);
            }
            state.record.is_of(&record)?;
            recorder::complete(run, state)?;
        }
        (None, broken) if interrupted || !broken.is_empty() => return Ok(None),
        // The checkpoints were removed to save disk space.
        (None, _) => {}
    }
    Ok(Some(over))
}

/// Returns the end and the totals in a record, if the run reached its end.
fn ended(run: &Path) -> Option<Over> {
    let (reader, head) = Reader::open(run).ok()?;
    let mut totals = Totals::new(head.accuracy?);
    let (mut policy, seed) = (head.policy, head.seed);
    for line in reader {
        match line.ok()? {
            Line::Step(step) => totals.add(&step),
            Line::Swap(swap) => policy = swap.policy,
            Line::End(end) => return end.normal.then_some(Over { policy, seed, totals, end }),
            _ => {}
        }
    }
    None
}

/// Returns the last intact checkpoint of a run to resume, if it has one. `change` describes another policy
/// that is to take over.
pub fn last(
    run: &Path,
    place: &RunIdentity<'_>,
    prepared: &Prepared<'_>,
    change: Option<&Change>,
    screen: &mut Screen<'_>,
) -> Result<Option<PathBuf>> {
    let (newest, broken) = Checkpoints::of(run, prepared.config.checkpoint.keep).newest()?;
    let Some((checkpoint, manifest)) = newest else {
        return match broken.into_iter().next() {
            // A new start would remove everything, although the damage may be repairable.
            Some(first) => {
                let all = run.join("checkpoints");
                let what = format!("no checkpoint in `{}` is complete: {}", all.display(), first.what);
                let hint = "restore what was changed; without that folder the run starts over";
                Err(Error::new(what).hint(hint))
            }
            None => Ok(None),
        };
    };
    for error in &broken {
        screen.tell(format_args!("note: {}; an earlier one is used", error.what));
    }
    of_this_run(run, place, prepared, change, (&checkpoint, &manifest))?;
    Ok(Some(checkpoint))
}

/// Fails if a checkpoint is from a run with other constants, another model or other data.
fn of_this_run(
    run: &Path,
    place: &RunIdentity<'_>,
    prepared: &Prepared<'_>,
    change: Option<&Change>,
    (checkpoint, manifest): (&Path, &Manifest),
) -> Result<()> {
    let differs = |what: &str, hint: &str| {
        let shown = checkpoint.display();
        Err(Error::new(format!("the checkpoint `{shown}` is from a run with {what}")).hint(hint))
    };
    if manifest.config != change.map_or(place.config.as_str(), Change::before) {
        return differs("another config", "the run's `resolved.toml` was changed; restore it");
    }
    if !change.is_some_and(Change::named) && manifest.policy != prepared.policy.sha256() {
        let what = "the component that the config names has changed since";
        return differs("another policy", &format!("{what}; named by --policy, it takes over"));
    }
    if manifest.model != place.model {
        return differs("another model", "the weights that the config names have changed since");
    }
    let (_, head): (_, Head) = Reader::open(run)?;
    let description = prepared.policy.description();
    if description.signals != head.signals {
        let (name, wants) = (&description.name, signals(&description.signals));
        let what = format!("policy `{name}` wants {wants}; the run measures {}", signals(&head.signals));
        return Err(
            Error::new(what).hint("begin a run with that policy: buffered rollouts were already measured")
        );
    }
    if prepared.run.parts() != head.run.parts() {
        let what = format!("policy `{}` needs other parts of rewards than the run has", description.name);
        return Err(
            Error::new(what).hint("begin a run with that policy: buffered rollouts have the old parts")
        );
    }
    let columns = prepared.run.columns();
    let recorded = if columns.is_empty() { columns.clone() } else { allot_record::columns(run)? };
    let other = |column: &&Arc<Column>| recorded.named(&column.name).is_some_and(|then| then != *column);
    if let Some(other) = columns.iter().find(other) {
        let what = format!("other numbers in the column `{}`", other.name);
        return differs(&what, "the data that the config names have changed since");
    }
    same_judge(&head, prepared, checkpoint)?;
    let (problems, train) = (&prepared.problems, prepared.problems.train);
    for (which, now) in [("problems", 0..train), ("held_out", train..problems.all.len())] {
        let then = head.training.as_ref().and_then(|t| t[which]["sha256"].as_str());
        if then != Some(problems.hash(now).as_str()) {
            return differs("other problems", "the data that the config names have changed since");
        }
    }
    Ok(())
}

/// Fails if a grader or the environment differs from the one at the start of the run. Records of older versions do not
/// identify it.
fn same_judge(head: &Head, prepared: &Prepared<'_>, checkpoint: &Path) -> Result<()> {
    let reward = head.training.as_ref().map(|training| &training["reward"]).unwrap_or_default();
    let then = reward["graders"].as_array().map_or(std::slice::from_ref(reward), Vec::as_slice);
    let recorded = |of: &Value| Identity::deserialize(&of["process"]).ok();
    let now = then.iter().zip(&prepared.judges).find_map(|(then, now)| {
        let (then, now) = recorded(then).zip(now.as_ref())?;
        now.identity.apart(&then, &now.words)
    });
    let then = head.training.as_ref().and_then(|training| recorded(&training["environment"]));
    let played = then.zip(prepared.outside.as_ref()).and_then(|(then, outside)| outside.apart(&then));
    let (which, how) = match (now, played) {
        (Some(how), _) => ("grader", how),
        (None, Some(how)) => ("environment", how),
        (None, None) => return Ok(()),
    };
    let shown = checkpoint.display();
    let what = format!("the checkpoint `{shown}` is from a run with another {which}: {how}");
    Err(Error::new(what).hint(format!(
        "restore the {which}; or begin a new run with this one, from these weights, with `model.use = \
         \"{shown}/model\"`"
    )))
}

/// Removes the files of a run that stopped before its first checkpoint.
pub fn clear(folder: &Path) -> Result<()> {
    for name in [
        "record.jsonl",
        "times.jsonl",
        "metrics.jsonl",
        "log.jsonl",
        "problems.parquet",
        "tensorboard",
        "rollouts",
        "shadows",
        "checkpoints",
    ] {
        let path = folder.join(name);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::file("remove", &path, &e));
            }
            _ => {}
        }
    }
    Ok(())
}
