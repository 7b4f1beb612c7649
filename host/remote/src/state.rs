//! A checkpoint's state of a model on a server.

use serde::{Deserialize, Serialize};

/// The progress of a model, and the server's path to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerState {
    /// Model updates made.
    pub version: u32,
    /// Steps of the optimizer made.
    pub optimizer_steps: u32,
    /// The server's path to weights and optimizer. None before the first update.
    pub path: Option<String>,
}
