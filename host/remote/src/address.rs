//! Where a server is, how it is spoken to, and how much is put up with: what every engine on another machine has in
//! its section of the config.

use std::time::Duration;

use allot_settings::rollouts::ServerKind;
use allot_settings::{RemoteConfig, RolloutsConfig, ServiceConfig, engine, rollouts};

/// A server's place, and the manners towards it.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: String,
    /// What comes between that and a verb.
    pub(crate) path: &'static str,
    /// The section of the config that says so, for sentences.
    pub(crate) section: &'static str,
    /// The variable of the environment that has the key.
    pub(crate) api_key_env: Option<String>,
    /// How the key is shown.
    pub(crate) lock: Lock,
    /// Exchanges at a time, at most.
    pub(crate) connections: u32,
    /// The longest that one exchange may take.
    pub(crate) request: Duration,
    /// How long the server may be away.
    pub(crate) patience: Duration,
    /// The first pause before something is asked again.
    pub(crate) retry: Duration,
}

/// How a server wants its key.
#[derive(Clone, Copy)]
pub(crate) enum Lock {
    /// In a header of its own, `x-api-key`.
    ApiKey,
    /// As `authorization: Bearer …`. With it goes the name that such a key's variable usually has.
    Bearer(&'static str),
}

impl Lock {
    /// The header's name, and what comes before the key in it.
    pub(crate) fn header(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => ("x-api-key", ""),
            Self::Bearer(_) => ("authorization", "Bearer "),
        }
    }

    /// What a variable with such a key may be called.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::ApiKey => "TINKER_API_KEY",
            Self::Bearer(name) => name,
        }
    }
}

impl Address {
    /// The server that trains.
    pub(crate) fn trainer(config: &RemoteConfig) -> Self {
        Self {
            url: config.url.clone(),
            path: "/api/v1/",
            section: engine::SECTION,
            api_key_env: config.api_key_env.clone(),
            lock: Lock::ApiKey,
            connections: config.connections,
            request: Duration::from_secs_f64(config.request_seconds),
            patience: Duration::from_secs_f64(config.patience_seconds),
            retry: Duration::from_secs_f64(config.retry_seconds),
        }
    }

    /// The server at one of the addresses that rollouts are sampled at.
    pub(crate) fn sampler(config: &RolloutsConfig, url: &str) -> Self {
        Self {
            url: url.to_owned(),
            path: "/",
            section: rollouts::SECTION,
            api_key_env: config.api_key_env.clone(),
            lock: Lock::Bearer(match config.kind {
                ServerKind::Sglang => "SGLANG_API_KEY",
                ServerKind::Vllm => "VLLM_API_KEY",
            }),
            // Each rollout is one exchange, and `model.rows` says how many are asked for at a time.
            connections: u32::MAX,
            request: Duration::from_secs_f64(config.request_seconds),
            patience: Duration::from_secs_f64(config.patience_seconds),
            retry: Duration::from_secs_f64(config.retry_seconds),
        }
    }

    /// A server that answers requests.
    pub(crate) fn service(config: &ServiceConfig) -> Self {
        Self {
            url: config.url.clone(),
            path: "/",
            section: config.section,
            api_key_env: config.api_key_env.clone(),
            lock: Lock::Bearer("OPENAI_API_KEY"),
            connections: config.connections,
            request: Duration::from_secs_f64(config.request_seconds),
            patience: Duration::from_secs_f64(config.patience_seconds),
            retry: Duration::from_secs_f64(config.retry_seconds),
        }
    }
}
