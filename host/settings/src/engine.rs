//! `[engine]` of a config: a server that samples and trains.

use serde::{Deserialize, Serialize};

use crate::Server;
use crate::address::{Wrong, patience_seconds, retry_seconds, wrong_seconds, wrong_url};

/// The config's section.
pub const SECTION: &str = "engine";

/// A server that speaks the Tinker protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// The server's address, without `/api/v1`.
    pub url: String,
    /// The server's implementation. All use one protocol and differ in how they average a loss over tokens.
    pub server: Server,
    /// The server's name for the model.
    pub base_model: String,
    /// The rank of the adapters that the server trains.
    #[serde(default = "rank")]
    pub lora_rank: u32,
    /// The environment variable that holds the API key. The key itself is written in no config and no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The most rollouts of one prompt in a request. With more than 1, the server derives their seeds from
    /// the first one, so a rollout's text depends on how many were requested together.
    #[serde(default = "one")]
    pub samples_per_request: u32,
    /// The most concurrent requests. Each takes one connection, sometimes two. A connection takes an open
    /// file here and on the server.
    #[serde(default = "connections")]
    pub connections: u32,
    /// Time limit of one request, in seconds.
    #[serde(default = "request_seconds")]
    pub request_seconds: f64,
    /// Seconds that the server may be unreachable, or busy with one request, before the run stops.
    #[serde(default = "patience_seconds")]
    pub patience_seconds: f64,
    /// Seconds before the first retry. Each further pause is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds")]
    pub retry_seconds: f64,
}

fn rank() -> u32 {
    32
}

fn one() -> u32 {
    1
}

/// Below the default limit on open files of a process: 256 on macOS, 1024 on Linux.
fn connections() -> u32 {
    100
}

fn request_seconds() -> f64 {
    60.0
}

impl RemoteConfig {
    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<Wrong> {
        let told = |key, value: &dyn ToString, rule: &str| Some((key, value.to_string(), rule.to_owned()));
        let example = "http://localhost:8000";
        if let Some(wrong) = wrong_url(&self.url, self.api_key_env.is_some(), SECTION, example) {
            return Some(wrong);
        }
        if self.base_model.is_empty() {
            return told("base_model", &"empty", "expected the server's name for the model");
        }
        let counts = [
            ("lora_rank", self.lora_rank),
            ("samples_per_request", self.samples_per_request),
            ("connections", self.connections),
        ];
        for (key, value) in counts {
            if value == 0 {
                return told(key, &value, "expected at least 1");
            }
        }
        wrong_seconds(self.request_seconds, self.patience_seconds, self.retry_seconds)
    }
}
