//! Replaces the policy of a run that resumes. The new policy takes over between two steps, at a checkpoint.
//! The host's state is kept, the old policy's state is lost, and the record has the step.
//!
//! A swap is complete when a checkpoint has the new config. If the program stops before that, the swap did
//! not happen; if it stops after that, the next process finishes the swap.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_allocation::{Column, Need};
use allot_base::{Error, Result, write_lasting};
use allot_config::train::TrainConfig;
use allot_loop::At;
use allot_record::{Line, Swap, hex};
use allot_sandbox::{Policy, sha256};

use crate::checkpoint::{Checkpoints, RunState};
use crate::prepared::Prepared;
use crate::recorder::RunRecorder;
use crate::training::Trained;
use crate::{run_dir, shipped};

/// The file of the new config, until the swap is complete.
const NEXT: &str = "next.toml";

/// A change of the policy or its settings in a run that resumes.
pub struct Change {
    /// The hash of the current config.
    before: String,
    /// Whether a policy was given, so that another component may take over.
    named: bool,
}

impl Change {
    /// Returns the change of a config with this text. `policy` is the given policy, if any.
    pub fn of(text: &str, policy: Option<&str>) -> Self {
        Self { before: sha256(text), named: policy.is_some() }
    }

    /// Returns the hash of the current config.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Returns whether a policy was given, so that another component may take over.
    pub fn named(&self) -> bool {
        self.named
    }

    /// Returns whether the config changes.
    pub fn of_config(&self, text: &str) -> bool {
        sha256(text) != self.before
    }

    /// Returns whether anything changes: the config, or the component, which may be a different one at the
    /// same path.
    pub fn is_one(&self, run: &Path, text: &str, policy: &Policy) -> Result<bool> {
        let latest = Checkpoints::of(run, 1).latest()?;
        let other = latest.is_some_and(|manifest| manifest.policy != policy.sha256());
        Ok(self.of_config(text) || self.named && other)
    }
}

/// Finishes or reverts a swap that was interrupted.
pub fn settle(run: &Path) -> Result<()> {
    sweep(run)?;
    let next = run.join(NEXT);
    let text = match std::fs::read(&next) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(e) => return Err(Error::file("read", &next, &e)),
    };
    match Checkpoints::of(run, 1).latest()? {
        Some(manifest) if manifest.config == sha256(&text) => replace(run, manifest.steps),
        _ => std::fs::remove_file(&next).map_err(|e| Error::file("remove", &next, &e)),
    }
}

/// Removes configs whose writing was interrupted. The name of such a file begins with a dot until it is written.
fn sweep(run: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(run) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(e) => return Err(Error::file("read", run, &e)),
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".toml") {
            std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
        }
    }
    Ok(())
}

/// Returns the config of a run with another policy, or with other settings of the same policy.
pub fn config(kept: &TrainConfig, policy: Option<&str>, typed: &[String]) -> Result<TrainConfig> {
    let mut config = kept.clone();
    if let Some(policy) = policy {
        // Equal paths may be written differently.
        let mut other = config.policy.clone();
        policy.clone_into(&mut other.source);
        other.settle()?;
        config.policy.become_other(&other.source);
    }
    config.policy.settings.extend(allot_config::typed(typed, "--set ")?);
    Ok(config)
}

/// Fails if a run has nothing left to decide before its end.
pub fn has_room(state: &RunState<'_>, steps: u32) -> Result<()> {
    let run = &state.run;
    let spent = run.ledger.exhausted() && run.buffer.rollouts() == 0;
    if run.steps < steps && !spent {
        if run.at == At::Between {
            return Ok(());
        }
        let what = format!(
            "the run stopped within step {}, but a policy takes over between two steps",
            run.steps + 1
        );
        return Err(Error::new(what).hint("finish that step first: --resume RUN --finish-step"));
    }
    let error = Error::new("the run has only to finish, so another policy cannot take it over");
    Err(error.hint("finish it first, without --policy and --set"))
}

/// Lets the new policy take over a world that was restored from the old policy's checkpoint.
pub fn done(
    run: &Path,
    change: &Change,
    prepared: &Prepared<'_>,
    world: &mut Trained<'_>,
    recorder: &mut RunRecorder<'_, '_>,
) -> Result<()> {
    let text = run_dir::text(&prepared.config)?;
    // For another build at the same path only the hash changes, which is in the record.
    let other = change.of_config(&text);
    if other {
        let next = run.join(NEXT);
        // Synced to disk before a checkpoint refers to it.
        write_lasting(&next, text.as_bytes())?;
    }
    world.run.state.policy.clone_from(&prepared.state);
    if !world.run.of.run.gives(Need::Replay) {
        // The policy would treat trained rollouts as new.
        let gone = world.run.state.buffer.let_go_trained();
        // A waiting update still uses some of them.
        world.forget();
        recorder.finished(&gone)?;
    }
    let swap = Swap {
        step: world.run.state.steps,
        policy: shipped::policy_stamp(prepared.policy),
        settings: prepared.run.settings.clone(),
        terms: world.run.of.run.terms.clone(),
        caps: shipped::stamp(prepared.config.policy.limits.caps()),
        state: hex(&world.run.state.policy),
    };
    let shown = world.run.of.run.columns();
    let recorded = if shown.is_empty() { shown.clone() } else { allot_record::columns(run)? };
    for column in shown.iter().filter(|column| recorded.named(&column.name).is_none()) {
        world.record.write(&Line::Column(Box::new(Column::clone(column))))?;
    }
    world.record.write(&Line::Swap(Box::new(swap)))?;
    recorder.begun()?;
    recorder.save(world).map_err(|stop| run_dir::stopped(&stop, Some(run), None))?;
    if other { replace(run, world.run.state.finished()) } else { Ok(()) }
}

/// Activates the new config. Keeps the old one next to it.
fn replace(run: &Path, steps: u32) -> Result<()> {
    let (next, place) = (run.join(NEXT), run.join("resolved.toml"));
    let text = std::fs::read(&place).map_err(|e| Error::file("read", &place, &e))?;
    let before = before(run, steps, &text);
    if !before.exists() {
        write_lasting(&before, &text)?;
    }
    std::fs::rename(&next, &place).map_err(|e| Error::file("write", &place, &e))
}

/// Returns the path of the config that was used until `steps` steps were finished. It may exist already,
/// from an interrupted swap.
fn before(run: &Path, steps: u32, text: &[u8]) -> PathBuf {
    (0..1000)
        .map(|n| if n == 0 { String::new() } else { format!("-{n}") })
        .map(|again| run.join(format!("until-step-{steps:06}{again}.toml")))
        .find(|path| std::fs::read(path).map_or(true, |kept| kept == text))
        .unwrap_or_else(|| run.join("until.toml"))
}
