//! Sampling on a server, updates on this machine: an engine whose `sample` queries SGLang or vLLM, and
//! whose other verbs are the native ones.
//!
//! Before the first sampling at a version, the current weights are written as a model folder and the server
//! loads them, under a label that identifies their content. Each reply names the weights that it was
//! sampled with, and is used only if that is the label. Further guarantees:
//!
//! - **Each turn of an episode** is a request of its own. Its environment is on this machine, and what it says is counted
//!   as read once.
//! - **Each rollout has its own seed** and may be requested again. Answers that arrived are kept; the
//!   ledger is charged once, when the grant is complete.
//! - **Several servers** share the work: each gets the next rollout as soon as it is free. The others take
//!   over the rollouts of a server that is unavailable.
//! - **A restarted server** is recognized by its label and gets the weights again. A server that has
//!   another run's weights ends this run with an error.
//! - **The trainer's state is on this machine.** Checkpoints and resuming are the native ones; a resumed
//!   run first hands its weights over.
//!
//! Every reply is checked: its tokens, ends, log-probabilities and labels.

mod episodes;
mod fleet;
mod handover;
mod preflight;
mod request;
mod sampler;
mod sglang;
mod split;
mod vllm;

pub use allot_settings::rollouts::{RolloutsConfig, ServerKind, Urls};
pub use handover::{Handover, Write};
pub use preflight::{Preflight, preflight};
pub use split::Split;
