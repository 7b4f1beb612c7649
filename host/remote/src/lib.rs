//! Engines on other machines. [`Remote`] samples, scores and updates with the Tinker protocol, on a server
//! that holds the model: SkyRL, other servers, or a hosted service. [`rollouts`] samples on a server while
//! the model trains on this machine, [`Service`] sends independent requests of any kind, and [`registry`]
//! fetches policies from container registries. The rest of this page is about [`Remote`].
//!
//! A server may be unavailable, slow, forgetful or wrong. Guarantees:
//!
//! - **Each request that changes a model has a number**, `seq_id`, and a retry has the same number. A
//!   server that has already done it returns the same promise and does nothing twice.
//! - **The model's state is saved on the server after each update**, weights and optimizer together, and
//!   only then does the update count. If the server restarted or dropped the model, a new model is created
//!   from the last state and the whole update is repeated. A partial update is never part of that state.
//! - **Each rollout has its own seed** and may be requested again. Answers that arrived are kept; the
//!   ledger is charged once, when the grant is complete.
//! - **A run that gives up keeps its last checkpoint**, which names the server's state.
//!
//! Every reply is checked: promises, counts, lengths, tokens and log-probabilities. An invalid reply ends
//! the run with an error.
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
