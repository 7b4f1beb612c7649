//! The [`Engine`] trait: sampling and updating.

use std::collections::HashMap;

pub use allot_allocation::Cost;
use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, SamplerSettings, Stopped, TurnLength};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Interrupt;
use crate::model::ModelError;
use allot_base::Error;

/// Callback for each rollout as soon as it is complete, while others are still being sampled. Receives
/// its index in the result of [`Engine::sample`] and the rollout. Called once for each, in any order.
pub type Whole<'a, A> = &'a mut dyn FnMut(usize, &Sample<A>);

/// Rollouts in the order of their grant; `None` for a rollout that an interrupt left incomplete.
pub type Sampled<A> = Vec<Option<Sample<A>>>;

/// The purpose of rollouts. It decides how they are sampled, unless a grant's lines do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Training.
    Training,
    /// Evaluation in the setting with this index. Setting 0 gives the run's eval accuracy.
    Evaluation(usize),
}

/// An engine: samples rollouts and learns from them.
pub trait Engine {
    /// The content of a rollout: token ids, or anything else that a reward can grade.
    type Answer: Clone;

    /// Returns what the engine supports. Read before a run starts.
    fn capabilities(&self) -> Capabilities;

    /// Returns the number of model updates made so far.
    fn version(&self) -> u32;

    /// Samples all rollouts of a grant, in the order of its lines. A rollout's draws depend only on
    /// (run seed, prompt, version, position) and on its sampling settings. `whole` receives each
    /// rollout once it is complete. Only rollouts that an interrupt left incomplete are missing.
    fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Self::Answer>,
        interrupt: &Interrupt,
    ) -> impl Future<Output = Result<Sampled<Self::Answer>, EngineError>>;

    /// Takes the rollouts that the next grant continues, by prompt and by position in the prompt's group. Called
    /// before [`sample`](Self::sample), if there are any.
    fn hold(&mut self, _rollouts: HashMap<(PromptId, u32), Self::Answer>) {}

    /// Returns the turns of a rollout that is an episode, and why it stopped.
    fn turns(_answer: &Self::Answer) -> Option<(Vec<TurnLength>, Stopped)> {
        None
    }

    /// Returns the compute of sampling these rollouts, granted in these lines. Discarded work is
    /// not counted. A prompt is read once for all the answers that a line grants.
    fn sampled(&self, _lines: &[GrantLine], _samples: &[Sample<Self::Answer>]) -> Compute {
        Compute::default()
    }

    /// Makes one model update on these examples (at least one), in this order. `geometry` cuts them
    /// into optimizer steps; without it the engine's config does. An interrupt before the first
    /// optimizer step leaves the model unchanged and returns [`EngineError::Interrupted`].
    fn update(
        &mut self,
        batch: &[Example<'_, Self::Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> impl Future<Output = Result<Report, EngineError>>;

    /// Announces the next update, so that work on it may begin. Until [`update`](Self::update) is
    /// called, sampling and checkpoints use the state before this update. An engine that cannot
    /// sample and learn at the same time does nothing.
    fn begin(
        &mut self,
        _batch: &[Example<'_, Self::Answer>],
        _geometry: Option<Geometry>,
        _interrupt: &Interrupt,
    ) -> impl Future<Output = Result<(), EngineError>> {
        async { Ok(()) }
    }

    /// Returns the compute of updates since the last call.
    fn computed(&mut self) -> Compute;

    /// Returns an upper bound on the cost of a rollout of `tokens` tokens. It never decreases with
    /// length, so the cost of the longest rollout bounds all. Zero if operations are not counted.
    fn cost(&self, _prompt: PromptId, _tokens: u32) -> Cost {
        Cost::default()
    }
}

/// Capabilities of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The engine's name, for the record.
    pub name: String,
    /// Names of the signals that it can measure for each rollout.
    pub signals: Vec<String>,
}

/// A rollout as sampled by an engine, not yet graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample<A> {
    /// The prompt.
    pub prompt: PromptId,
    /// Its position among the prompt's rollouts at this version.
    pub position: u32,
    /// Model updates made before it was sampled.
    pub version: u32,
    /// Its content.
    pub answer: A,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it reached the length limit.
    pub truncated: bool,
    /// Log-probability at sampling time, summed over its tokens.
    pub log_prob: f64,
    /// The requested signals, in the order of the request.
    pub signals: Vec<f32>,
    /// Its sampling settings, if they differ from the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
}

/// A rollout to learn from, with its advantage.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a, A> {
    /// The rollout.
    pub sample: &'a Sample<A>,
    /// The scaled difference between its reward and its baseline.
    pub advantage: f32,
    /// The advantage of each of its turns. Empty if all have the rollout's.
    pub by_turn: &'a [f32],
}

/// Results of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Metrics to log, by name.
    pub metrics: Vec<(&'static str, f64)>,
}

/// Error of an engine.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A setting is out of range.
    #[error("`{key}` is {value}; {rule}")]
    Setting {
        /// The config key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The rule for its values.
        rule: &'static str,
    },
    /// The environments can't go on.
    #[error("{0}")]
    Environment(String),
    /// The update would have made the weights non-finite.
    #[error("the update was refused: {0} is not finite")]
    NotFinite(&'static str),
    /// Another sampler's log-probabilities differ too much from the trainer's for the same weights.
    #[error(
        "the log-probabilities that the sampler told lie {apart:.3} nats from the trainer's own on average; \
         {most} are the limit"
    )]
    Apart {
        /// The mean difference, in nats.
        apart: f64,
        /// The largest difference allowed, in nats.
        most: f64,
    },
    /// The update was interrupted before it changed the model.
    #[error("the update was interrupted")]
    Interrupted,
    /// The model could not be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A remote service failed.
    #[error("{what}")]
    Remote {
        /// The error and where it occurred.
        what: String,
        /// How to fix it.
        hint: String,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::told(error.to_string(), error.hint())
    }
}

impl EngineError {
    /// Returns a hint on how to fix the error, if there is one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Model(error) => error.hint(),
            Self::Remote { hint, .. } => Some(hint),
            Self::Apart { .. } => Some(
                "it has other weights, or tells log-probabilities of another temperature; if it only rounds so \
                 coarsely, set `rollout_server.tolerance` higher",
            ),
            Self::Environment(_) => Some("mend the environment, and continue with `allot train --resume`"),
            Self::Setting { .. } | Self::NotFinite(_) | Self::Interrupted => None,
        }
    }
}
