//! A run that is taken up again: whether it is over, where it goes on, and whether what it was made of is
//! still what it was.

use std::path::{Path, PathBuf};

use crate::checkpoint::{self, Checkpoints, Manifest};
use crate::config::train::TrainConfig;
use crate::keeper::{self, Place};
use crate::screen::Screen;
use crate::summary::Totals;
use crate::training::Prepared;
use crate::trouble::{Result, Trouble, listed};
use allot_record::{End, Head, Line, Reader};

/// Whether a run is over and all of it is on the disk; says so and shows its closing table again.
pub fn over(run: &Path, config: &TrainConfig, json: bool, screen: &mut Screen<'_>) -> Result<bool> {
    let Some((head, totals, end)) = ended(run) else { return Ok(false) };
    let checkpoints = Checkpoints::of(run, config.checkpoint.keep);
    // Stopped in the middle of its first and last checkpoint, it has to make that.
    let interrupted = checkpoints.interrupted()?;
    match checkpoints.newest()? {
        (Some((checkpoint, _)), _) => {
            let state = checkpoint::state(&checkpoint)?;
            let record = run.join("record.jsonl");
            let bytes = std::fs::metadata(&record).map_err(|e| Trouble::file("read", &record, &e))?.len();
            // The end is written before the last checkpoint is.
            if state.record != bytes {
                return Ok(false);
            }
            keeper::complete(run, state)?;
        }
        (None, broken) if interrupted || !broken.is_empty() => return Ok(false),
        // Somebody needed the room.
        (None, _) => {}
    }
    screen.tell(format_args!("the run in {} is over", run.display()));
    if json {
        screen.say(totals.json(&end, &head.policy.name, &head.policy.sha256, head.seed));
    } else {
        totals.show(&end, screen);
    }
    Ok(true)
}

/// What a record says of a run's end, and what its steps add up to, if it came to one.
fn ended(run: &Path) -> Option<(Head, Totals, End)> {
    let (reader, head) = Reader::open(run).ok()?;
    let mut totals = Totals::new(head.accuracy?);
    for line in reader {
        match line.ok()? {
            Line::Step(step) => totals.add(&step),
            Line::End(end) => return end.normal.then_some((head, totals, end)),
            _ => {}
        }
    }
    None
}

/// The last good checkpoint of a run that is to go on, if it has one. `swapped` is the hash of its config where
/// another policy is to take over.
pub fn last(
    run: &Path,
    config: &TrainConfig,
    place: &Place<'_>,
    prepared: &Prepared<'_>,
    swapped: Option<&str>,
    screen: &mut Screen<'_>,
) -> Result<Option<PathBuf>> {
    let (newest, broken) = Checkpoints::of(run, config.checkpoint.keep).newest()?;
    let Some((checkpoint, manifest)) = newest else {
        return match broken.into_iter().next() {
            // All that the run has would go away, for what somebody may still mend.
            Some(first) => {
                let all = run.join("checkpoints");
                let what = format!("no checkpoint in `{}` is whole: {}", all.display(), first.what);
                let hint = "put back what was changed; without that folder the run starts anew";
                Err(Trouble::new(what).hint(hint))
            }
            None => Ok(None),
        };
    };
    for trouble in &broken {
        screen.tell(format_args!("note: {}; an earlier one is taken", trouble.what));
    }
    of_this_run(run, place, prepared, swapped, (&checkpoint, &manifest))?;
    Ok(Some(checkpoint))
}

/// Refuses a checkpoint of a run with other constants, another model or other data.
fn of_this_run(
    run: &Path,
    place: &Place<'_>,
    prepared: &Prepared<'_>,
    swapped: Option<&str>,
    (checkpoint, manifest): (&Path, &Manifest),
) -> Result<()> {
    let differs = |what: &str, hint: &str| {
        let shown = checkpoint.display();
        Err(Trouble::new(format!("the checkpoint `{shown}` is of a run with {what}")).hint(hint))
    };
    if manifest.config != swapped.unwrap_or(&place.config) {
        return differs("another config", "the run's `resolved.toml` was changed; put it back as it was");
    }
    if swapped.is_none() && manifest.policy != prepared.policy.sha256() {
        return differs("another policy", "the component that the config names is not the one of that time");
    }
    if manifest.model != place.model {
        return differs("another model", "the weights that the config names are not the ones of that time");
    }
    let (_, head): (_, Head) = Reader::open(run)?;
    let signals = &prepared.policy.description().signals;
    if *signals != head.signals {
        let list = |signals: &[String]| listed(signals.iter().map(String::as_str));
        let name = &prepared.policy.description().name;
        let what = format!(
            "policy `{name}` wants the signals {}; the run measures {}",
            list(signals),
            list(&head.signals)
        );
        return Err(
            Trouble::new(what).hint("what is on hand was measured already: begin a run with that policy")
        );
    }
    let (problems, train) = (&prepared.problems, prepared.problems.train);
    for (which, now) in [("problems", 0..train), ("held_out", train..problems.all.len())] {
        let then = head.training.as_ref().and_then(|t| t[which]["sha256"].as_str());
        if then != Some(problems.hash(now).as_str()) {
            return differs(
                "other problems",
                "the data that the config names are not what they were at that time",
            );
        }
    }
    Ok(())
}

/// Removes what a run left that stopped before its first checkpoint.
pub fn clear(folder: &Path) -> Result<()> {
    for name in
        ["record.jsonl", "times.jsonl", "metrics.jsonl", "tensorboard", "rollouts", "shadows", "checkpoints"]
    {
        let path = folder.join(name);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Trouble::file("remove", &path, &e));
            }
            _ => {}
        }
    }
    Ok(())
}
