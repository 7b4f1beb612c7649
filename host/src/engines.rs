//! The engine of a training run: on this machine, on a server, or training here and sampling on a server.
//! Adds a checkpoint's state of each.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, Stopped, TurnLength};
use allot_base::{Error, Result};
use allot_engine::core::Core;
use allot_engine::model::{Precision, Shape};
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Example, Interrupt, Native, Purpose, Report, Sample,
    Sampled, Whole,
};
use allot_models::tokens::Tokens;
use allot_remote::Remote;
use allot_remote::rollouts::{Handover, RolloutsConfig, Split};

use allot_record::hex;
use sha2::{Digest as _, Sha256};

use crate::checkpoint::{self, RunState};

/// The file of a checkpoint that holds the state on a server.
const SERVER: &str = "server.json";

/// Open files of a run besides its connections to a server: its tables and its graders, with a margin.
#[cfg(unix)]
const FILES: u64 = 56;

/// Checks that this process may open enough files for the connections to a server. Otherwise the first
/// connection over the limit would look like an unavailable server. `key` is the config key of the number.
#[cfg(unix)]
pub fn has_room(key: &str, wanted: u64) -> Result<()> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // A new connection may be open while a finished one is not closed yet.
    let needed = 2 * wanted + FILES;
    match most.filter(|most| *most < needed) {
        None => Ok(()),
        Some(most) => {
            let what =
                format!("`{key}` is {wanted}, but this process may have only {most} files open at a time");
            let hint = format!("lower it, or raise the limit first: ulimit -n {needed}");
            Err(Error::new(what).hint(hint))
        }
    }
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn has_room(_: &str, _: u64) -> Result<()> {
    Ok(())
}

/// An engine of any kind.
pub enum AnyEngine {
    /// The model is on this machine.
    Native(Box<Native>),
    /// The model is on this machine, and rollouts are sampled on a server.
    Split(Box<Split>),
    /// The model is on a server.
    Remote(Box<Remote>),
}

impl AnyEngine {
    /// Returns whether all trained numbers are finite. For a model on a server, the log-probabilities and
    /// norms that the server reports have already been checked.
    pub fn finite(&self) -> Result<bool> {
        Ok(self.core().map_or(Ok(true), Core::finite)?)
    }

    /// Returns the number of optimizer steps.
    pub fn optimizer_steps(&self) -> u32 {
        match self {
            Self::Native(native) => native.core().steps(),
            Self::Split(split) => split.native().core().steps(),
            Self::Remote(remote) => remote.steps(),
        }
    }

    /// Returns the model that is trained on this machine, if there is one.
    fn core(&self) -> Option<&dyn Core> {
        match self {
            Self::Native(native) => Some(native.core()),
            Self::Split(split) => Some(split.native().core()),
            Self::Remote(_) => None,
        }
    }

    /// Writes weights and optimizer into a checkpoint's folder, or the server's path to them.
    pub fn save(&self, folder: &Path, tokens: &Tokens, shape: &Shape) -> Result<()> {
        let trained = |core: &dyn Core| {
            let model = folder.join("model");
            let weights = core.checkpoint()?;
            debug_assert_eq!(weights.shape, *shape);
            weights.export(&model, Precision::F32, tokens.special())?;
            tokens.write(&model)?;
            Ok(core.save_training(folder)?)
        };
        match self {
            Self::Native(native) => trained(native.core()),
            Self::Split(split) => trained(split.native().core()),
            Self::Remote(remote) => {
                let path = folder.join(SERVER);
                let text = serde_json::to_vec_pretty(remote.keep());
                let text = text.map_err(|e| Error::new(format!("no state of a server: {e}")))?;
                std::fs::write(&path, text).map_err(|e| Error::file("write", &path, &e))
            }
        }
    }

    /// Resumes from a checkpoint.
    pub fn restore(&mut self, folder: &Path, state: &RunState<'_>) -> Result<()> {
        match self {
            Self::Native(native) => {
                let model = folder.join("model");
                Ok(native.restore(folder, &model, state.run.version, state.optimizer_steps)?)
            }
            Self::Split(split) => {
                let model = folder.join("model");
                Ok(split.restore(folder, &model, state.run.version, state.optimizer_steps)?)
            }
            Self::Remote(remote) => {
                let path = folder.join(SERVER);
                let text = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
                let kept: allot_remote::ServerState = serde_json::from_slice(&text).map_err(|e| {
                    Error::new(format!("`{}` is not a valid server state: {e}", path.display()))
                })?;
                if (kept.version, kept.optimizer_steps) != (state.run.version, state.optimizer_steps) {
                    let what = format!("`{}` is from a different step than its checkpoint", path.display());
                    return Err(Error::new(what));
                }
                remote.restore(kept);
                Ok(())
            }
        }
    }
}

/// Returns the handover of a run's weights to its sampling server. `config` is the text of the run's
/// config, whose hash distinguishes its folders from other runs'.
pub fn handover(rollouts: &RolloutsConfig, tokens: Arc<Tokens>, config: &str) -> Handover {
    let precision = rollouts.dtype;
    let write = move |core: &dyn Core, folder: &Path| -> std::result::Result<String, EngineError> {
        let told = |t: Error| EngineError::Remote { what: t.what, hint: t.hints.join("; ") };
        core.checkpoint()?.export(folder, precision, tokens.special())?;
        tokens.write(folder).map_err(told)?;
        allot_base::lasting(folder).map_err(told)?;
        checkpoint::sha256(&folder.join("model.safetensors")).map_err(told)
    };
    let there = rollouts.weights_there.clone().unwrap_or_else(|| rollouts.weights.clone());
    let tag = &hex(&Sha256::digest(config))[..8];
    Handover::new(rollouts.weights.clone().into(), there, tag, Box::new(write))
}

impl Engine for AnyEngine {
    type Answer = Answer;

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Native(native) => native.capabilities(),
            Self::Split(split) => split.capabilities(),
            Self::Remote(remote) => remote.capabilities(),
        }
    }

    fn version(&self) -> u32 {
        match self {
            Self::Native(native) => native.version(),
            Self::Split(split) => split.version(),
            Self::Remote(remote) => remote.version(),
        }
    }

    async fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> std::result::Result<Sampled<Answer>, EngineError> {
        match self {
            Self::Native(native) => native.sample(grant, purpose, whole, interrupt).await,
            Self::Split(split) => split.sample(grant, purpose, whole, interrupt).await,
            Self::Remote(remote) => remote.sample(grant, purpose, whole, interrupt).await,
        }
    }

    fn hold(&mut self, rollouts: HashMap<(PromptId, u32), Answer>) {
        match self {
            Self::Native(native) => native.hold(rollouts),
            Self::Split(split) => split.hold(rollouts),
            // A server that trains plays no episodes.
            Self::Remote(_) => {}
        }
    }

    fn turns(answer: &Answer) -> Option<(Vec<TurnLength>, Stopped)> {
        Native::turns(answer)
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Answer>]) -> Compute {
        match self {
            Self::Native(native) => native.sampled(lines, samples),
            Self::Split(split) => split.sampled(lines, samples),
            Self::Remote(remote) => remote.sampled(lines, samples),
        }
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> std::result::Result<Report, EngineError> {
        match self {
            Self::Native(native) => native.update(batch, geometry, interrupt).await,
            Self::Split(split) => split.update(batch, geometry, interrupt).await,
            Self::Remote(remote) => remote.update(batch, geometry, interrupt).await,
        }
    }

    async fn begin(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> std::result::Result<(), EngineError> {
        match self {
            Self::Native(native) => native.begin(batch, geometry, interrupt).await,
            Self::Split(split) => split.begin(batch, geometry, interrupt).await,
            Self::Remote(remote) => remote.begin(batch, geometry, interrupt).await,
        }
    }

    fn computed(&mut self) -> Compute {
        match self {
            Self::Native(native) => native.computed(),
            Self::Split(split) => split.computed(),
            Self::Remote(remote) => remote.computed(),
        }
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        match self {
            Self::Native(native) => native.cost(prompt, tokens),
            Self::Split(split) => split.cost(prompt, tokens),
            Self::Remote(remote) => remote.cost(prompt, tokens),
        }
    }
}
