//! Where the server is, and how much is put up with.

use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::server::Server;

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

fn patience_seconds() -> f64 {
    1800.0
}

fn retry_seconds() -> f64 {
    0.5
}

impl RemoteConfig {
    /// The first key whose value makes no sense, its value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, String, &'static str)> {
        let told = |key, value: &dyn ToString, rule| Some((key, value.to_string(), rule));
        match Url::parse(&self.url) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                // Not even to say what is wrong with it.
                let hidden = "an address with a password";
                return told("url", &hidden, "a key is given by `engine.api_key_env` alone");
            }
            Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                return told("url", &self.url, "it ends with a path, or before it");
            }
            Ok(url) if url.scheme() == "http" && self.api_key_env.is_some() && !is_loopback(&url) => {
                return told("url", &self.url, "a key goes over https alone, but on this machine");
            }
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {}
            _ => return told("url", &self.url, "it is an address like http://localhost:8000"),
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
        [
            ("request_seconds", self.request_seconds),
            ("patience_seconds", self.patience_seconds),
            ("retry_seconds", self.retry_seconds),
        ]
        .into_iter()
        .find(|(_, value)| !(*value > 0.0 && *value <= 86_400.0))
        .and_then(|(key, value)| told(key, &value, "it is more than 0 and at most a day, 86400"))
    }

    /// How long the server may be away.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience_seconds)
    }
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
