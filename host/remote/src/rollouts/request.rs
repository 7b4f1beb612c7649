//! A request for a rollout, and a server's reply.

use allot_engine::{Sampling, Stops};

use crate::sample::ClaimedRollout;

/// A request for one rollout.
#[derive(Clone, Copy)]
pub(crate) struct SampleRequest<'a> {
    /// The prompt, in tokens.
    pub(crate) prompt: &'a [u32],
    /// The seed of its random draws.
    pub(crate) seed: u32,
    pub(crate) sampling: Sampling,
    pub(crate) stops: &'a Stops,
}

/// A server's description of a rollout.
pub(crate) struct RolloutReply {
    pub(crate) claim: ClaimedRollout,
    /// Number of prompt tokens that the server read.
    pub(crate) prompt: usize,
    /// Why it ended, in the server's words, if not by a stop or the length limit.
    pub(crate) broken: Option<String>,
    /// The labels of the weights that it was sampled with.
    pub(crate) weights: Vec<String>,
}
