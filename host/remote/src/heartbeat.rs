//! Keeps a session alive. A server drops the models of a session that it has not heard from for some minutes, and a
//! judge or a policy may take longer.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::json;

use crate::client::{Client, RequestBody};

/// How often, at least. Servers wait for minutes.
const EVERY: Duration = Duration::from_secs(20);

/// Beats until it is dropped.
pub(crate) struct Heartbeat(#[expect(dead_code, reason = "to be dropped")] Sender<()>);

impl Heartbeat {
    /// Heartbeats of a session. They have a thread of its own, because the run's does not come to it while a
    /// policy decides.
    pub(crate) fn of(client: &Client, session: &str) -> Self {
        let (stop, stopped) = channel();
        let every = EVERY.min(client.to().patience / 30);
        let (client, body) =
            (client.again(), json!({ "session_id": session, "type": "session_heartbeat" }).to_string());
        std::thread::spawn(move || {
            let Ok(client) = client else { return };
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // One that is lost tells of nothing that the run's next request would not.
                let _ = runtime.block_on(client.once("session_heartbeat", Some(RequestBody::Json(&body))));
            }
        });
        Self(stop)
    }
}
