//! Keeps a session alive. A server drops the models of a session after some minutes without a request, and
//! a grader or a policy may take longer.

use std::time::Duration;

use allot_engine::EngineError;
use serde_json::json;
use tokio::task::AbortHandle;

use crate::client::{Client, RequestBody};
use crate::runtime::runtime;

/// The longest time between two heartbeats. Servers wait for minutes.
const EVERY: Duration = Duration::from_secs(20);

/// Heartbeats of a session, until this is dropped.
pub(crate) struct Heartbeat(AbortHandle);

impl Heartbeat {
    /// Starts the heartbeats of a session as a task of the program's runtime, so that they go on while the run's thread
    /// decides, samples or trains. The task has its own client: one connection must not depend on two runtimes.
    pub(crate) fn of(client: &Client, session: &str) -> Result<Self, EngineError> {
        let every = EVERY.min(client.to().patience / 30);
        let client = client.again()?;
        let body = json!({ "session_id": session, "type": "session_heartbeat" }).to_string();
        let beats = async move {
            loop {
                tokio::time::sleep(every).await;
                // A lost heartbeat has no consequence of its own: the run's next request fails the same way.
                let _ = client.once("session_heartbeat", Some(RequestBody::Json(&body))).await;
            }
        };
        Ok(Self(runtime()?.spawn(beats).abort_handle()))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}
