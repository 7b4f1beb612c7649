//! The engine of a training run: on this machine, or on a server. The same verbs, and what a checkpoint keeps of
//! either.

use std::path::Path;

use allot_allocation::{Compute, Grant};
use allot_engine::model::{Precision, Shape};
use allot_engine::{Answer, Capabilities, Engine, EngineError, Example, Native, Report, Sample, Whole};
use allot_remote::{Remote, RemoteConfig};

use crate::checkpoint::State;
use crate::tokens::Tokens;
use crate::trouble::{Result, Trouble};

/// Where a checkpoint has what a server keeps.
const SERVER: &str = "server.json";

/// Files that a run has open beside its connections to a server: its tables and its judges, with room to spare.
#[cfg(unix)]
const FILES: u64 = 56;

/// Refuses more connections to a server than this process may have files open. Else the first ones past the limit
/// would look like a server that is away.
#[cfg(unix)]
pub fn has_room(server: &RemoteConfig) -> Result<()> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // A connection that is still being made when another one comes free is there beside it for a moment.
    let (wanted, needed) = (server.connections, 2 * u64::from(server.connections) + FILES);
    match most.filter(|most| *most < needed) {
        None => Ok(()),
        Some(most) => {
            let what = format!(
                "`engine.connections` is {wanted}, and this process may have {most} files open at a time"
            );
            let hint = format!("lower it, or let the process have more first: ulimit -n {needed}");
            Err(Trouble::new(what).hint(hint))
        }
    }
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn has_room(_: &RemoteConfig) -> Result<()> {
    Ok(())
}

/// An engine of either kind.
pub enum AnyEngine {
    /// The model is here.
    Native(Box<Native>),
    /// It is on a server.
    Remote(Box<Remote>),
}

impl AnyEngine {
    /// Whether every number that is trained is finite, as far as can be seen from here. A server's are seen in
    /// the log-probabilities and norms that it tells, and those were looked at.
    pub fn finite(&self) -> Result<bool> {
        match self {
            Self::Native(native) => Ok(native.core().finite()?),
            Self::Remote(_) => Ok(true),
        }
    }

    /// Steps that the optimizer has made.
    pub fn optimizer_steps(&self) -> u32 {
        match self {
            Self::Native(native) => native.core().steps(),
            Self::Remote(remote) => remote.steps(),
        }
    }

    /// Writes weights and optimizer into a checkpoint's folder, or where the server has them.
    pub fn save(&self, folder: &Path, tokens: &Tokens, shape: &Shape) -> Result<()> {
        match self {
            Self::Native(native) => {
                let (core, model) = (native.core(), folder.join("model"));
                let weights = core.checkpoint()?;
                debug_assert_eq!(weights.shape, *shape);
                weights.export(&model, Precision::F32, tokens.special())?;
                tokens.write(&model)?;
                Ok(core.save_training(folder)?)
            }
            Self::Remote(remote) => {
                let path = folder.join(SERVER);
                let text = serde_json::to_vec_pretty(remote.keep());
                let text = text.map_err(|e| Trouble::new(format!("no state of a server: {e}")))?;
                std::fs::write(&path, text).map_err(|e| Trouble::file("write", &path, &e))
            }
        }
    }

    /// Takes up training where a checkpoint left it.
    pub fn restore(&mut self, folder: &Path, state: &State) -> Result<()> {
        match self {
            Self::Native(native) => {
                let model = folder.join("model");
                Ok(native.restore(folder, &model, state.version, state.optimizer_steps)?)
            }
            Self::Remote(remote) => {
                let path = folder.join(SERVER);
                let text = std::fs::read(&path).map_err(|e| Trouble::file("read", &path, &e))?;
                let kept: allot_remote::State = serde_json::from_slice(&text).map_err(|e| {
                    Trouble::new(format!("`{}` is no state of a server: {e}", path.display()))
                })?;
                if (kept.version, kept.optimizer_steps) != (state.version, state.optimizer_steps) {
                    let what = format!("`{}` is of another step than its checkpoint", path.display());
                    return Err(Trouble::new(what));
                }
                remote.restore(kept);
                Ok(())
            }
        }
    }
}

impl Engine for AnyEngine {
    type Answer = Answer;

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Native(native) => native.capabilities(),
            Self::Remote(remote) => remote.capabilities(),
        }
    }

    fn version(&self) -> u32 {
        match self {
            Self::Native(native) => native.version(),
            Self::Remote(remote) => remote.version(),
        }
    }

    async fn sample(
        &mut self,
        grant: Grant,
        whole: Whole<'_, Answer>,
    ) -> std::result::Result<Vec<Sample<Answer>>, EngineError> {
        match self {
            Self::Native(native) => native.sample(grant, whole).await,
            Self::Remote(remote) => remote.sample(grant, whole).await,
        }
    }

    async fn score(&mut self, samples: &[&Sample<Answer>]) -> std::result::Result<Vec<f64>, EngineError> {
        match self {
            Self::Native(native) => native.score(samples).await,
            Self::Remote(remote) => remote.score(samples).await,
        }
    }

    async fn update(&mut self, batch: &[Example<'_, Answer>]) -> std::result::Result<Report, EngineError> {
        match self {
            Self::Native(native) => native.update(batch).await,
            Self::Remote(remote) => remote.update(batch).await,
        }
    }

    fn computed(&mut self) -> Compute {
        match self {
            Self::Native(native) => native.computed(),
            Self::Remote(remote) => remote.computed(),
        }
    }
}
