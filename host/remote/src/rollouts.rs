//! Rollouts on a server, updates here: an engine whose `sample` asks SGLang or vLLM, and whose other verbs are the
//! native ones.
//!
//! Before the first sampling at a version, the weights of now are written as a model's folder and the server loads
//! them, under a label that names their content. Each answer says by which weights it was sampled, and counts only
//! where that is the label. What keeps a run whole:
//!
//! - **Each rollout has its own seed** and may be requested again. Answers that arrived are kept; the ledger is charged
//!   once, when the grant is complete.
//! - **Several servers** share what is wanted: each is asked for the next rollout as soon as it is free. What one that is
//!   away was asked for, the others do.
//! - **A server that was started anew** says so by its label: it gets the weights again. One that has the weights of
//!   another run ends this one, in a sentence.
//! - **The trainer's state is here.** Checkpoints and resuming are the native ones; a run that goes on hands its
//!   weights over first.
//!
//! Nothing is believed because it came: tokens, ends, log-probabilities and labels are looked at.

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
