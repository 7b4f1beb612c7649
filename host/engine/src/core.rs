//! A core: a model on a device, with the state of its training. This trait is all that the engine knows of a core: not
//! where the numbers are, nor how they are computed.

use std::borrow::Cow;
use std::path::Path;

use crate::cpu::arena::Arena;
use crate::model::{Checkpoint, ModelError, Shape};
use crate::optimizer::Moments;
use crate::{Interrupt, OptimizerConfig, Sampling, SamplingMask, Stops};

pub use crate::statistics::TokenStatistics;

/// Returns the gradient of the loss by the statistics of an answer's tokens, given its sequence's number and these
/// statistics. A core calls it once for each sequence with an answer, in any order and from several threads.
pub type Loss<'a> = dyn Fn(usize, &[TokenStatistics]) -> TokenGradients + Sync + 'a;

/// A model that samples, scores and learns.
pub trait Core {
    /// The layout of this core's weights and gradients.
    fn arena(&self) -> &Arena;

    /// The model's shape.
    fn shape(&self) -> &Shape {
        &self.arena().shape
    }

    /// Whether adapters are trained, and the weights are not.
    fn adapted(&self) -> bool {
        false
    }

    /// Samples an answer to each request, `rows` at a time. `whole` is called with each answer once it is complete, and
    /// its request's number, in any order. On an interrupt the incomplete ones are dropped.
    fn sample(
        &self,
        requests: &[Request<'_>],
        stops: &Stops,
        rows: usize,
        whole: &mut dyn FnMut(usize, Answered),
        interrupt: &Interrupt,
    ) -> Result<(), ModelError>;

    /// Samples an answer to each request and returns all of them, in the order of the requests.
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

    /// Statistics of each answer's tokens, under the current weights or the reference.
    fn score(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        reference: bool,
    ) -> Result<Vec<Vec<TokenStatistics>>, ModelError>;

    /// Adds a micro-batch to the gradients. Without sequences there is nothing to add, and a step that
    /// follows is made all the same.
    fn learn(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        loss: &Loss<'_>,
    ) -> Result<(), ModelError>;

    /// Gives up the gradients gathered.
    fn forget(&mut self);

    /// One step of the optimizer on the gradients gathered, which are then zero again. Gives their norm
    /// before it was cut. Where that is not finite nothing changes.
    fn step(&mut self, config: &OptimizerConfig, rate: f64) -> Result<f64, ModelError>;

    /// Waits until the device has done all work. Only measurements of time need it: later calls wait for what they
    /// read.
    fn wait(&self) -> Result<(), ModelError> {
        Ok(())
    }

    /// A second core with the same weights and the same state of the optimizer, which can go to another thread. None where
    /// this kind of core is one of a kind.
    fn fork(&self) -> Result<Option<Box<dyn Core + Send>>, ModelError> {
        Ok(None)
    }

    /// How far a fork was trained.
    fn training(&self) -> Option<Training<'_>> {
        None
    }

    /// Goes on where a fork was trained to.
    fn follow(&mut self, _fork: Training<'_>) {}

    /// Steps that the optimizer has made.
    fn steps(&self) -> u32;

    /// Whether every number that is trained is finite.
    fn finite(&self) -> Result<bool, ModelError>;

    /// All weights but adapters, in the arena's layout.
    fn weights(&self) -> Result<Cow<'_, [f32]>, ModelError>;

    /// The gradients gathered so far, in the layout of what is trained.
    fn gathered(&self) -> Result<Vec<f32>, ModelError>;

    /// The weights as others should see them, on the host: with the adapters merged, if there are any.
    fn checkpoint(&self) -> Result<Checkpoint, ModelError>;

    /// Writes into a folder what a checkpoint keeps beside the weights.
    fn save_training(&self, folder: &Path) -> Result<(), ModelError>;

    /// Takes up training where a checkpoint left it, after this many steps of the optimizer: what
    /// [`Core::save_training`] wrote, and the weights in `model`.
    fn load_training(&mut self, folder: &Path, model: &Path, steps: u32) -> Result<(), ModelError>;
}

/// How far a core was trained: what two copies of one model differ in.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The numbers that are trained.
    pub(crate) trained: &'a [f32],
    /// The optimizer's.
    pub(crate) moments: &'a Moments,
}

/// An answer that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The prompt's tokens; at least one. Requests of one prompt that follow each other share it.
    pub prompt: &'a [u32],
    /// The seed of its draws.
    pub seed: u64,
    /// How tokens are drawn.
    pub sampling: Sampling,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    /// Its tokens, with the one that stopped it, or in which a text did.
    pub tokens: Vec<u32>,
    /// The log-probability of each at the sampling temperature, before top-k and top-p; after them where the mask is kept.
    pub log_probs: Vec<f32>,
    /// Mean entropy of the distributions that they were drawn from, in nats.
    pub entropy: f32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// What its tokens were drawn from, where that is kept.
    pub mask: SamplingMask,
}

/// A prompt and the answer that was given.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Prompt and answer, in tokens.
    pub tokens: &'a [u32],
    /// How many of them are the prompt. At least 1.
    pub prompt: usize,
    /// What the answer's tokens were drawn from, if not from the whole vocabulary: what is said of them is among those.
    pub mask: Option<&'a SamplingMask>,
}

impl Sequence<'_> {
    /// Tokens of the answer.
    pub fn answer(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Whether another one has the same prompt.
    pub fn shares_prompt(&self, other: &Sequence<'_>) -> bool {
        self.tokens[..self.prompt] == other.tokens[..other.prompt]
    }

    /// Tokens that the model reads: all but the last, which it only predicts.
    pub fn read(&self) -> usize {
        self.tokens.len() - 1
    }
}

/// How a batch is learned from or scored.
#[derive(Clone, Copy, Debug)]
pub struct PassOptions {
    /// What logits are divided by.
    pub temperature: f32,
    /// Whether activations are made again in the backward pass.
    pub recompute: bool,
}

/// Gradients by what the model says of an answer's tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenGradients {
    /// By each log-probability.
    pub log_probs: Vec<f32>,
    /// By each entropy; empty where a loss does not look at them.
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
    /// Appends those of another answer.
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
