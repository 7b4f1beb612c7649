//! What a core is asked to sample, and what it has sampled.

use crate::{Sampling, SamplingMask};

/// A request for one answer, or for one turn of an episode.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The prompt's tokens; at least one. Consecutive requests with the same prompt share its pass.
    pub prompt: &'a [u32],
    /// Tokens after the prompt that are already there: an episode's earlier turns.
    pub history: &'a [u32],
    /// The seed of the answer's random numbers.
    pub seed: u64,
    /// How tokens are drawn.
    pub sampling: Sampling,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    /// Its tokens, including the stop token or the token in which a stop text ends.
    pub tokens: Vec<u32>,
    /// Log-probability of each token at the temperature; after top-k and top-p only if `mask` is kept.
    pub log_probs: Vec<f32>,
    /// Mean entropy of the distributions that the tokens were drawn from, in nats.
    pub entropy: f32,
    /// Whether it reached the length limit.
    pub truncated: bool,
    /// The tokens that each token was drawn from; empty unless sampling keeps them.
    pub mask: SamplingMask,
}
