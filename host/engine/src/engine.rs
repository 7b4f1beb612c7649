//! The engine's two verbs: sample and update.

pub use allot_allocation::Cost;
use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, SamplerSettings};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Interrupt;
use crate::model::ModelError;
use allot_base::Error;

/// Told of each rollout as soon as it is whole, while others are still sampled: its place in what
/// [`Engine::sample`] gives, and the rollout. Once for each, in any order.
pub type Whole<'a, A> = &'a mut dyn FnMut(usize, &Sample<A>);

/// Rollouts in the order of their grant; none in place of one that an interrupt left incomplete.
pub type Sampled<A> = Vec<Option<Sample<A>>>;

/// What rollouts are sampled for. It says how, where a grant's lines do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be learned from.
    Training,
    /// To be scored, in the setting of this number: the first is what a run's accuracy is of.
    Evaluation(usize),
}

/// Something that samples rollouts and learns from them.
pub trait Engine {
    /// What a rollout says: token ids, or whatever a reward can judge.
    type Answer;

    /// What it can do. Looked at before a run starts.
    fn capabilities(&self) -> Capabilities;

    /// Model updates made so far.
    fn version(&self) -> u32;

    /// Samples all rollouts of a grant, in the order of its lines. A rollout's draws depend only on (run seed, prompt,
    /// version, position) and on how it is sampled. `whole` is called with each as it is completed. Only rollouts that an
    /// interrupt left incomplete are missing.
    fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Self::Answer>,
        interrupt: &Interrupt,
    ) -> impl Future<Output = Result<Sampled<Self::Answer>, EngineError>>;

    /// What sampling these rollouts, granted in these lines, takes: whatever was done in vain is not counted. A prompt
    /// is read once for all the answers that a line grants.
    fn sampled(&self, _lines: &[GrantLine], _samples: &[Sample<Self::Answer>]) -> Compute {
        Compute::default()
    }

    /// One model update on these examples, in this order, cut into optimizer steps as this geometry says, or else as
    /// the engine's own config does. There is at least one example. An interrupt before the first step of the
    /// optimizer leaves the model as it is: [`EngineError::Interrupted`].
    fn update(
        &mut self,
        batch: &[Example<'_, Self::Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> impl Future<Output = Result<Report, EngineError>>;

    /// The next update will be made on these examples and with this geometry, and may be worked on from now on: until
    /// [`update`](Self::update) is asked for, rollouts are sampled at the weights before it, and what is kept of the
    /// engine is what it was before it. An engine that can't work on both at a time does nothing here.
    fn begin(
        &mut self,
        _batch: &[Example<'_, Self::Answer>],
        _geometry: Option<Geometry>,
        _interrupt: &Interrupt,
    ) -> impl Future<Output = Result<(), EngineError>> {
        async { Ok(()) }
    }

    /// What updates computed since this was asked last.
    fn computed(&mut self) -> Compute;

    /// What a rollout of so many tokens costs at most. No less for a longer one, so that the cost of the longest is
    /// a bound. Nothing, where operations are not counted.
    fn cost(&self, _prompt: PromptId, _tokens: u32) -> Cost {
        Cost::default()
    }
}

/// What an engine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name, for the record.
    pub name: String,
    /// Signals that it can measure for each rollout, by name.
    pub signals: Vec<String>,
}

/// A rollout as an engine gives it, not yet judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample<A> {
    /// The prompt.
    pub prompt: PromptId,
    /// Its position among the prompt's rollouts at that version.
    pub position: u32,
    /// Model updates made before it was sampled.
    pub version: u32,
    /// What it says.
    pub answer: A,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Log-probability at sampling time, summed over its tokens.
    pub log_prob: f64,
    /// The signals asked for, in that order.
    pub signals: Vec<f32>,
    /// How it was sampled, where that is not as the run samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
}

/// A rollout to learn from.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a, A> {
    /// The rollout.
    pub sample: &'a Sample<A>,
    /// How much better it was than its baseline, scaled.
    pub advantage: f32,
}

/// What an update reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Numbers to log, by name.
    pub metrics: Vec<(&'static str, f64)>,
}

/// Why an engine could not do what it was asked.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Its settings make no sense.
    #[error("`{key}` is {value}; {rule}")]
    Setting {
        /// The config key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        rule: &'static str,
    },
    /// An update that would have broken the weights.
    #[error("the update was refused: {0} is not finite")]
    NotFinite(&'static str),
    /// Rollouts of another engine, whose probabilities can't be those of the same weights.
    #[error(
        "the log-probabilities that the sampler told lie {apart:.3} nats from the trainer's own on average; \
         {most} are the limit"
    )]
    Apart {
        /// How far, in nats.
        apart: f64,
        /// How far they may, in nats.
        most: f64,
    },
    /// The update was interrupted before it changed the model.
    #[error("the update was interrupted")]
    Interrupted,
    /// The model could not be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// What works elsewhere does not do what it was asked.
    #[error("{what}")]
    Remote {
        /// What happened, and where.
        what: String,
        /// What to do.
        hint: String,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::told(error.to_string(), error.hint())
    }
}

impl EngineError {
    /// What to do about it, where there is something to do.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Model(error) => error.hint(),
            Self::Remote { hint, .. } => Some(hint),
            Self::Apart { .. } => Some(
                "it has other weights, or tells log-probabilities of another temperature; if it only rounds so \
                 coarsely, set `rollout_server.tolerance` higher",
            ),
            Self::Setting { .. } | Self::NotFinite(_) | Self::Interrupted => None,
        }
    }
}
