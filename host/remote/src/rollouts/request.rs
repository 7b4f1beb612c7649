//! A rollout that a server is asked for, and what it tells of it.

use allot_engine::{Sampling, Stops};

use crate::sample::ClaimedRollout;

/// A rollout that is wanted.
#[derive(Clone, Copy)]
pub(crate) struct SampleRequest<'a> {
    /// The prompt, in tokens.
    pub(crate) prompt: &'a [u32],
    /// The seed of its draws.
    pub(crate) seed: u32,
    pub(crate) sampling: Sampling,
    pub(crate) stops: &'a Stops,
}

/// What a server tells of a rollout.
pub(crate) struct RolloutReply {
    pub(crate) claim: ClaimedRollout,
    /// Tokens of the prompt that it read.
    pub(crate) prompt: usize,
    /// Why it ended, by the server's word for it, if that is no end of ours.
    pub(crate) broken: Option<String>,
    /// The labels of the weights that it was sampled by.
    pub(crate) weights: Vec<String>,
}
