//! The check of a server before a run starts.

use allot_engine::EngineError;
use allot_settings::RemoteConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::address::Address;
use crate::client::{Client, Failure, told};
use crate::runtime::runtime;

/// Checks that the server is reachable, accepts the key and has the model. Creates nothing.
pub fn preflight(config: &RemoteConfig) -> Result<(), EngineError> {
    #[derive(Deserialize)]
    struct Models {
        supported_models: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        model_name: Option<String>,
    }
    let client = Client::first(Address::trainer(config))?;
    let foreign = || {
        let what = format!("the server at {} does not speak the Tinker protocol, `/api/v1`", config.url);
        let asked = format!("{}/api/v1/healthz", config.url.trim_end_matches('/'));
        told(what, &format!("set `engine.url` to the part before `/api/v1`; check what answers at {asked}"))
    };
    waited(async {
        let plain = |failure| match failure {
            Failure::Stop(error) | Failure::Away(error) => error,
            Failure::Lost(_) | Failure::Refused { .. } => foreign(),
        };
        let health = client.ask("healthz", None).await.map_err(plain)?;
        let health: Value = serde_json::from_slice(health.body()).unwrap_or_default();
        if !health["status"].is_string() {
            return Err(foreign());
        }
        let answer = client.ask("get_server_capabilities", None).await.map_err(plain)?;
        let models: Models = client.read("get_server_capabilities", &answer).map_err(plain)?;
        let names: Vec<String> = models.supported_models.into_iter().filter_map(|m| m.model_name).collect();
        if names.contains(&config.base_model) {
            return Ok(());
        }
        let what = format!("the server at {} has no model `{}`", config.url, config.base_model);
        let shown: Vec<String> = names.iter().take(12).map(|n| format!("`{}`", client.clean(n))).collect();
        let more = if names.len() > 12 { " and others" } else { "" };
        let has = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
        Err(told(what, &format!("it has {has}{more}; set `engine.base_model`")))
    })?
}

/// Runs a future to completion on the calling thread.
pub(crate) fn waited<T>(what: impl Future<Output = T>) -> Result<T, EngineError> {
    Ok(runtime()?.block_on(what))
}
