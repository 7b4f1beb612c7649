//! A server's address, credentials and limits, from its section of the config.

use std::time::Duration;

use allot_settings::rollouts::ServerKind;
use allot_settings::{RemoteConfig, RolloutsConfig, ServiceConfig, engine, rollouts};

/// A server's address, credentials and limits.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: String,
    /// The path between the address and a verb.
    pub(crate) path: &'static str,
    /// The config's section, for errors.
    pub(crate) section: &'static str,
    /// The environment variable that holds the API key.
    pub(crate) api_key_env: Option<String>,
    /// The header that sends the key.
    pub(crate) lock: Lock,
    /// The most concurrent requests.
    pub(crate) connections: u32,
    /// The time limit of one request.
    pub(crate) request: Duration,
    /// How long the server may be unreachable.
    pub(crate) patience: Duration,
    /// The pause before the first retry.
    pub(crate) retry: Duration,
}

/// How a server takes its key.
#[derive(Clone, Copy)]
pub(crate) enum Lock {
    /// In the header `x-api-key`.
    ApiKey,
    /// As `authorization: Bearer …`, with the usual name of such a key's variable.
    Bearer(&'static str),
}

impl Lock {
    /// Returns the header's name, and the text before the key in it.
    pub(crate) fn header(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => ("x-api-key", ""),
            Self::Bearer(_) => ("authorization", "Bearer "),
        }
    }

    /// Returns the usual name of a variable with such a key.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::ApiKey => "TINKER_API_KEY",
            Self::Bearer(name) => name,
        }
    }
}

impl Address {
    /// Returns the address of the training server.
    pub(crate) fn trainer(config: &RemoteConfig) -> Self {
        let seconds = [config.request_seconds, config.patience_seconds, config.retry_seconds];
        Self {
            path: "/api/v1/",
            connections: config.connections,
            ..Self::of(&config.url, engine::SECTION, config.api_key_env.as_ref(), Lock::ApiKey, seconds)
        }
    }

    /// Returns the address of one of the inference servers.
    pub(crate) fn sampler(config: &RolloutsConfig, url: &str) -> Self {
        let lock = Lock::Bearer(match config.kind {
            ServerKind::Sglang => "SGLANG_API_KEY",
            ServerKind::Vllm => "VLLM_API_KEY",
        });
        let seconds = [config.request_seconds, config.patience_seconds, config.retry_seconds];
        // Each rollout is one request, and `model.rows` limits how many are sent concurrently.
        Self::of(url, rollouts::SECTION, config.api_key_env.as_ref(), lock, seconds)
    }

    /// Returns the address of a server whose requests are independent of each other.
    pub(crate) fn service(config: &ServiceConfig) -> Self {
        let seconds = [config.request_seconds, config.patience_seconds, config.retry_seconds];
        let lock = Lock::Bearer("OPENAI_API_KEY");
        let connections = config.connections;
        Self {
            connections,
            ..Self::of(&config.url, config.section, config.api_key_env.as_ref(), lock, seconds)
        }
    }

    /// Returns an address without a path or a limit on concurrent requests. `seconds` has the time limit of
    /// a request, how long the server may be unreachable, and the first pause before a retry.
    fn of(
        url: &str,
        section: &'static str,
        api_key_env: Option<&String>,
        lock: Lock,
        seconds: [f64; 3],
    ) -> Self {
        let [request, patience, retry] = seconds.map(Duration::from_secs_f64);
        let (url, api_key_env) = (url.to_owned(), api_key_env.cloned());
        Self { url, path: "/", section, api_key_env, lock, connections: u32::MAX, request, patience, retry }
    }
}
