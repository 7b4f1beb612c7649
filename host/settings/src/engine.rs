//! `[engine]` of a config: a server that samples and trains.

use serde::{Deserialize, Serialize};

use crate::Server;
use crate::address::{Wrong, patience_seconds, retry_seconds, wrong_seconds, wrong_url};

/// The section of the config that this is.
pub const SECTION: &str = "engine";

/// A server that speaks the Tinker protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// Where it is: what comes before `/api/v1`.
    pub url: String,
    /// Which one it is. Servers answer alike, and differ in how they make a loss of their tokens.
    pub server: Server,
    /// The model, by the server's name for it.
    pub base_model: String,
    /// The rank of the adapters that the server trains.
    #[serde(default = "rank")]
    pub lora_rank: u32,
    /// The variable of the environment that has the key. The key itself is in no config and in no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Rollouts of one prompt in one request, at most. With more than 1 the server makes their seeds of the
    /// first one's, and what a rollout says depends on how many were asked for beside it.
    #[serde(default = "one")]
    pub samples_per_request: u32,
    /// Exchanges with it at a time, at most. Each takes a connection, or two for a moment, and a connection takes an
    /// open file here and on the server.
    #[serde(default = "connections")]
    pub connections: u32,
    /// The longest that one exchange may take.
    #[serde(default = "request_seconds")]
    pub request_seconds: f64,
    /// How long the server may be away, or busy with one thing, before the run stops.
    #[serde(default = "patience_seconds")]
    pub patience_seconds: f64,
    /// The first pause before something is asked again. Each further one is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds")]
    pub retry_seconds: f64,
}

fn rank() -> u32 {
    32
}

fn one() -> u32 {
    1
}

/// So many that nobody has to let a process have more files open than it may: on macOS that is 256, on Linux 1024.
fn connections() -> u32 {
    100
}

fn request_seconds() -> f64 {
    60.0
}

impl RemoteConfig {
    /// The first key whose value makes no sense, its value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<Wrong> {
        let told = |key, value: &dyn ToString, rule: &str| Some((key, value.to_string(), rule.to_owned()));
        let example = "http://localhost:8000";
        if let Some(wrong) = wrong_url(&self.url, self.api_key_env.is_some(), SECTION, example) {
            return Some(wrong);
        }
        if self.base_model.is_empty() {
            return told("base_model", &"empty", "it is the server's name for the model");
        }
        let counts = [
            ("lora_rank", self.lora_rank),
            ("samples_per_request", self.samples_per_request),
            ("connections", self.connections),
        ];
        for (key, value) in counts {
            if value == 0 {
                return told(key, &value, "it is at least 1");
            }
        }
        wrong_seconds([
            ("request_seconds", self.request_seconds),
            ("patience_seconds", self.patience_seconds),
            ("retry_seconds", self.retry_seconds),
        ])
    }
}
