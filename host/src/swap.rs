//! Another policy for a run that goes on. It takes over between two steps, at a checkpoint: what the host
//! remembers stays, what the policy before remembered is gone, and the record says where.
//!
//! A swap is done once a checkpoint is of the new config. Stopped before that, it never was; stopped after,
//! the next process ends it.

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

/// The config to be in force, until it is.
const NEXT: &str = "next.toml";

/// A change of policy or settings that the user wants for a run that resumes.
pub struct Change {
    /// The hash of the config in force until now.
    before: String,
    /// Whether a policy was named, so that another component may take over.
    named: bool,
}

impl Change {
    /// A change of the config with this text. `policy` is the one that was named, if one was.
    pub fn of(text: &str, policy: Option<&str>) -> Self {
        Self { before: sha256(text), named: policy.is_some() }
    }

    /// The hash of the config in force until now.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Whether a policy was named, so that another component may take over.
    pub fn named(&self) -> bool {
        self.named
    }

    /// Whether the config becomes another one by it.
    pub fn of_config(&self, text: &str) -> bool {
        sha256(text) != self.before
    }

    /// Whether anything becomes another by it: the config, or the component, which may be another one under
    /// the same path.
    pub fn is_one(&self, run: &Path, text: &str, policy: &Policy) -> Result<bool> {
        let latest = Checkpoints::of(run, 1).latest()?;
        let other = latest.is_some_and(|manifest| manifest.policy != policy.sha256());
        Ok(self.of_config(text) || self.named && other)
    }
}

/// Ends a swap that a stop cut short, or takes it back.
pub fn settle(run: &Path) -> Result<()> {
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

/// The config of a run with another policy, or with other settings of the same one.
pub fn config(kept: &TrainConfig, policy: Option<&str>, typed: &[String]) -> Result<TrainConfig> {
    let mut config = kept.clone();
    if let Some(policy) = policy {
        // A path is the same one however it is written.
        let mut other = config.policy.clone();
        policy.clone_into(&mut other.source);
        other.settle()?;
        config.policy.become_other(&other.source);
    }
    config.policy.settings.extend(allot_config::typed(typed, "--set ")?);
    Ok(config)
}

/// Refuses a swap in a run that has nothing left to decide, and only has to end.
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

/// Lets the policy at hand take over a world that was put back from a checkpoint of another.
pub fn done(
    run: &Path,
    change: &Change,
    prepared: &Prepared<'_>,
    world: &mut Trained<'_>,
    recorder: &mut RunRecorder<'_, '_>,
) -> Result<()> {
    let text = run_dir::text(&prepared.config)?;
    // Of another build under the same path there is nothing to say but its hash, and the record has that.
    let other = change.of_config(&text);
    if other {
        let next = run.join(NEXT);
        // On the disk before a checkpoint counts on it.
        write_lasting(&next, text.as_bytes())?;
    }
    world.run.state.policy.clone_from(&prepared.state);
    if !world.run.of.run.gives(Need::Replay) {
        // It would take what was trained on for fresh.
        let gone = world.run.state.buffer.let_go_trained();
        // An update that waits is made on some of them still.
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

/// Puts the new config in force. The one before is kept beside it.
fn replace(run: &Path, steps: u32) -> Result<()> {
    let (next, place) = (run.join(NEXT), run.join("resolved.toml"));
    let text = std::fs::read(&place).map_err(|e| Error::file("read", &place, &e))?;
    let before = before(run, steps, &text);
    if !before.exists() {
        write_lasting(&before, &text)?;
    }
    std::fs::rename(&next, &place).map_err(|e| Error::file("write", &place, &e))
}

/// Where the config is kept that was in force until so many steps were done. It may be there already, from a
/// time that a stop cut short.
fn before(run: &Path, steps: u32, text: &[u8]) -> PathBuf {
    (0..1000)
        .map(|n| if n == 0 { String::new() } else { format!("-{n}") })
        .map(|again| run.join(format!("until-step-{steps:06}{again}.toml")))
        .find(|path| std::fs::read(path).map_or(true, |kept| kept == text))
        .unwrap_or_else(|| run.join("until.toml"))
}
