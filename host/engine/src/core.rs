//! The [`Core`] trait: a model on a device, with its training state. The engine uses a core only
//! through this trait and does not depend on where its numbers are or how they are computed.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use crate::cpu::arena::Arena;
use crate::model::{Checkpoint, ModelError, Shape};
use crate::optimizer::Moments;
use crate::talk::{self, Talk};
use crate::{Interrupt, OptimizerConfig, SamplingMask, Stops};

pub use crate::request::{Answered, Request};
pub use crate::statistics::TokenStatistics;

/// Returns the gradients of the loss, given a sequence's index and the statistics of its answer's
/// tokens. A core calls it once per sequence with an answer, in any order and from several threads.
pub type Loss<'a> = dyn Fn(usize, &[TokenStatistics]) -> TokenGradients + Sync + 'a;

/// A model that samples, scores and learns.
pub trait Core {
    /// The layout of this core's weights and gradients.
    fn arena(&self) -> &Arena;

    /// The model's shape.
    fn shape(&self) -> &Shape {
        &self.arena().shape
    }

    /// Whether adapters are trained and the weights are frozen.
    fn adapted(&self) -> bool {
        false
    }

    /// Samples an answer to each request, `rows` at a time. `whole` receives each complete answer
    /// with its request's index, in any order. After an interrupt, incomplete answers are dropped.
    fn sample(
        &self,
        requests: &[Request<'_>],
        stops: &Stops,
        rows: usize,
        whole: &mut dyn FnMut(usize, Answered),
        interrupt: &Interrupt,
    ) -> Result<(), ModelError>;

    /// Samples an answer to each request and returns them in the order of the requests.
    fn answers(
        &self,
        requests: &[Request<'_>],
        stops: &Stops,
        rows: usize,
    ) -> Result<Vec<Answered>, ModelError> {
        let mut answers = vec![Answered::default(); requests.len()];
        let whole = &mut |number: usize, answer| answers[number] = answer;
        self.sample(requests, stops, rows, whole, &Interrupt::new())?;
        Ok(answers)
    }

    /// Samples the turns of episodes, one episode for each of these prompts, `rows` turns at a time. `talk`
    /// says what follows each turn. An episode reads and generates at most `room` tokens after its prompt.
    /// Returns once all episodes have ended, or after an interrupt.
    ///
    /// This plain version computes each turn from the prompt on. A core may keep what it has computed.
    fn converse(
        &self,
        prompts: &[&[u32]],
        stops: &Stops,
        rows: usize,
        _room: usize,
        talk: &mut Talk<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), ModelError> {
        let sample = &mut |requests: &[Request<'_>], whole: &mut dyn FnMut(usize, Answered)| {
            self.sample(requests, stops, rows, whole, interrupt)
        };
        talk::from_the_start(prompts, sample, talk, interrupt)
    }

    /// Returns statistics of each answer's tokens, under the current weights or the reference.
    fn score(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        reference: bool,
    ) -> Result<Vec<Vec<TokenStatistics>>, ModelError>;

    /// Adds the gradients of a micro-batch. With no sequences it adds nothing, and the next
    /// [`Core::step`] still makes a step.
    fn learn(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        loss: &Loss<'_>,
    ) -> Result<(), ModelError>;

    /// Drops the accumulated gradients.
    fn forget(&mut self);

    /// Makes one optimizer step with the accumulated gradients, then clears them. Returns the
    /// gradient norm before clipping. If the norm is not finite, nothing changes.
    fn step(&mut self, config: &OptimizerConfig, rate: f64) -> Result<f64, ModelError>;

    /// Waits until the device has finished all work. Only time measurements need it: other calls
    /// wait for the results that they read.
    fn wait(&self) -> Result<(), ModelError> {
        Ok(())
    }

    /// Returns a second core with the same weights and optimizer state, which can move to another
    /// thread. `None` if this kind of core cannot be copied.
    fn fork(&self) -> Result<Option<Box<dyn Core + Send>>, ModelError> {
        Ok(None)
    }

    /// The training state of a fork. `None` if this kind of core cannot be copied.
    fn training(&self) -> Option<Training<'_>> {
        None
    }

    /// Adopts the training state of a fork.
    fn follow(&mut self, _fork: Training<'_>) {}

    /// Optimizer steps made so far.
    fn steps(&self) -> u32;

    /// Whether all trained parameters are finite.
    fn finite(&self) -> Result<bool, ModelError>;

    /// All weights without adapters, in the arena's layout.
    fn weights(&self) -> Result<Cow<'_, [f32]>, ModelError>;

    /// The accumulated gradients, in the layout of the trained parameters.
    fn gathered(&self) -> Result<Vec<f32>, ModelError>;

    /// The weights to export, on the host, with any adapters merged.
    fn checkpoint(&self) -> Result<Checkpoint, ModelError>;

    /// Writes the files that a checkpoint keeps beside the weights into `folder`.
    fn save_training(&self, folder: &Path) -> Result<(), ModelError>;

    /// Resumes training from a checkpoint made after `steps` optimizer steps. Reads the files of
    /// [`Core::save_training`] from `folder` and the weights from `model`.
    fn load_training(&mut self, folder: &Path, model: &Path, steps: u32) -> Result<(), ModelError>;
}

/// The training state in which two copies of one model differ.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The trained parameters.
    pub(crate) trained: &'a [f32],
    /// The optimizer's moments.
    pub(crate) moments: &'a Moments,
}

/// A prompt and an answer to it, or an episode's turns.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Tokens of prompt and answer.
    pub tokens: &'a [u32],
    /// Number of prompt tokens; at least 1.
    pub prompt: usize,
    /// Ranges of `tokens` after the prompt that the model did not generate, in order: what an environment
    /// said. They are read, and nothing is learned from them. The last token is always generated.
    pub observed: &'a [Range<usize>],
    /// Tokens that the statistics of each answer token are computed over; `None` for the whole vocabulary.
    pub mask: Option<&'a SamplingMask>,
}

impl Sequence<'_> {
    /// Returns the number of answer tokens: those that the model generated.
    pub fn answer(&self) -> usize {
        self.own() - self.observed.iter().map(ExactSizeIterator::len).sum::<usize>()
    }

    /// Returns the number of tokens after the prompt, generated or not.
    pub fn own(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Returns the places of the answer tokens in `tokens`.
    pub fn generated(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(self.prompt).chain(self.observed.iter().map(|range| range.end));
        let ends = self.observed.iter().map(|range| range.start).chain([self.tokens.len()]);
        starts.zip(ends).flat_map(|(from, to)| from..to)
    }

    /// Returns whether `other` has the same prompt.
    pub fn shares_prompt(&self, other: &Sequence<'_>) -> bool {
        self.tokens[..self.prompt] == other.tokens[..other.prompt]
    }

    /// Returns the number of tokens that the model reads: all but the last, which is only predicted.
    pub fn read(&self) -> usize {
        self.tokens.len() - 1
    }
}

/// Options of a pass that scores or learns.
#[derive(Clone, Copy, Debug)]
pub struct PassOptions {
    /// Divisor of the logits.
    pub temperature: f32,
    /// Whether activations are recomputed in the backward pass.
    pub recompute: bool,
}

/// Gradients by the statistics of an answer's tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenGradients {
    /// By each log-probability.
    pub log_probs: Vec<f32>,
    /// By each entropy; empty if the loss does not use entropies.
    pub entropies: Vec<f32>,
}

impl From<Vec<f32>> for TokenGradients {
    fn from(log_probs: Vec<f32>) -> Self {
        Self { log_probs, entropies: Vec::new() }
    }
}

impl FromIterator<f32> for TokenGradients {
    fn from_iter<I: IntoIterator<Item = f32>>(log_probs: I) -> Self {
        log_probs.into_iter().collect::<Vec<_>>().into()
    }
}

impl TokenGradients {
    /// Appends the gradients of another answer.
    pub fn extend(&mut self, other: Self) {
        let (before, entropies) = (self.log_probs.len(), &mut self.entropies);
        self.log_probs.extend(other.log_probs);
        if !(entropies.is_empty() && other.entropies.is_empty()) {
            entropies.resize(before, 0.0);
            entropies.extend(other.entropies);
            entropies.resize(self.log_probs.len(), 0.0);
        }
    }
}
