//! Engines on other machines. [`Remote`] speaks sample, score and update in the Tinker protocol to a server that
//! holds the model: SkyRL serves it, so do others, and a hosted service. [`rollouts`] samples on a server while the
//! model learns here, a [`Service`] answers requests of any kind, each by itself, and [`registry`] fetches policies from
//! registries of container images; this page is about the first.
//!
//! A server may be away, slow, forgetful or wrong. What keeps a run whole:
//!
//! - **Whatever changes a model has a number**, `seq_id`, and is asked again with the same one. A server
//!   that has done it already answers with the promise of that time, and does nothing twice.
//! - **The model's state is saved on the server after each update**, weights and optimizer together, and
//!   an update counts once that is done. A server that no longer has the model, because it was started
//!   anew or let it go, gets a new one from the last state, and the update is made again from its start:
//!   half of one was never part of that state.
//! - **Each rollout has its own seed** and may be requested again. Answers that arrived are kept; the
//!   ledger is charged once, when the grant is complete.
//! - **A run that gives up stays as it was** at its last checkpoint, which names the server's state.
//!
//! Nothing is believed because it came: promises, counts, lengths, tokens and log-probabilities are looked
//! at, and what does not fit ends the run in one sentence.
//!
//! ```
//! use allot_remote::{Cuts, Mean, Server};
//!
//! // What a server does with a loss is known by its kind: no server says so itself.
//! assert_eq!(Server::SkyrlJax.can().loss, Mean::SequenceMean);
//! assert_eq!(Server::Tinker.can().gradients, Cuts::AsTold);
//! ```

mod address;
mod client;
mod engine;
mod heartbeat;
mod learn;
mod metrics;
mod patience;
mod preflight;
mod protobuf;
pub mod registry;
pub mod rollouts;
mod runtime;
mod sample;
mod service;
mod session;
mod state;
mod trainer;

pub use allot_settings::server::{Can, Cuts, Mean, Server};
pub use allot_settings::{RemoteConfig, ServiceConfig, Wrong};
pub use engine::{Remote, SIGNALS};
pub use patience::patient;
pub use preflight::preflight;
pub use runtime::runtime;
pub use service::Service;
pub use state::ServerState;
