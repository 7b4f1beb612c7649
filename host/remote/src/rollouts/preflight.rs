//! The check of a sampling server before a run starts. Loads nothing and samples nothing.

use std::path::Path;

use allot_engine::model::Shape;
use allot_engine::{EngineError, Sampling};
use allot_settings::rollouts::{RolloutsConfig, ServerKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::handover::Handover;
use super::vllm;
use crate::address::Address;
use crate::client::{Client, Failure, told};
use crate::preflight::waited;

/// The server versions whose protocols are implemented, from their sources of 2026-11-22.
const VERSIONS: &str = "SGLang 0.5.23 and vLLM 0.32.0";

/// A server's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preflight {
    /// Its version.
    pub version: String,
    /// The longest sequence that the server accepts, in tokens.
    pub context: Option<usize>,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
}

/// SGLang's description of its model.
#[derive(Deserialize)]
struct ModelInfo {
    is_generation: bool,
    model_type: Option<String>,
    weight_version: Option<String>,
}

/// SGLang's description of the server.
#[derive(Deserialize)]
struct ServerInfo {
    version: String,
    served_model_name: Option<String>,
    #[serde(default)]
    enable_deterministic_inference: bool,
}

/// Both servers' list of models.
#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    max_model_len: Option<usize>,
}

/// Checks that the server is reachable, accepts the key, has the model, and supports the run's sampling,
/// and that weights can be written into the handover folder.
pub fn preflight(
    config: &RolloutsConfig,
    shape: &Shape,
    sampling: &Sampling,
) -> Result<Preflight, EngineError> {
    Handover::try_folder(Path::new(&config.weights))?;
    let mut all: Option<Preflight> = None;
    for url in config.url.all() {
        let client = Client::first(Address::sampler(config, url))?;
        let one = waited(async {
            match config.kind {
                ServerKind::Sglang => sglang(&client, config, shape).await,
                ServerKind::Vllm => vllm(&client, config, sampling).await,
            }
        })??;
        all = Some(all.map_or_else(|| one.clone(), |all| all.and(&one)));
    }
    Ok(all.unwrap_or_default())
}

impl Preflight {
    /// Combines the results of several servers, of which each may sample any rollout.
    fn and(mut self, other: &Self) -> Self {
        if !self.version.split(", ").any(|version| version == other.version) {
            self.version = format!("{}, {}", self.version, other.version);
        }
        self.context = self.context.into_iter().chain(other.context).min();
        self.notes.extend(
            other.notes.iter().filter(|note| !self.notes.contains(note)).cloned().collect::<Vec<_>>(),
        );
        self
    }

    /// Checks that the longest prompt and its answer fit into the server's context.
    pub fn fits(&self, longest: usize) -> Result<(), EngineError> {
        match self.context {
            Some(context) if context < longest => {
                let what =
                    format!("the server takes {context} tokens, but the longest prompt and answer have");
                let hint = "start it with a longer context, or lower `model.max_prompt_tokens` or \
                            `sampling.max_tokens`";
                Err(told(format!("{what} {longest}"), hint))
            }
            _ => Ok(()),
        }
    }
}

/// Requests something that every server of a kind has.
async fn known<T: for<'d> Deserialize<'d>>(
    client: &Client,
    verb: &str,
    kind: &str,
) -> Result<T, EngineError> {
    let foreign = |why: &str| {
        let url = &client.to().url;
        let what = format!("the server at {url} is not a supported {kind}: {why}");
        told(
            what,
            &format!("set `rollout_server.url` to the part before `/{verb}`; allot supports {VERSIONS}"),
        )
    };
    let answer = client.ask(verb, None).await.map_err(|failure| match failure {
        Failure::Stop(error) | Failure::Away(error) => error,
        Failure::Lost(_) => foreign(&format!("it has no `/{verb}`")),
        Failure::Refused { status, .. } => foreign(&format!("it answers `/{verb}` with {status}")),
    })?;
    serde_json::from_slice(answer.body())
        .map_err(|_| foreign(&format!("its answer to `/{verb}` is not the expected one")))
}

/// Checks that the server has the model.
fn named(client: &Client, config: &RolloutsConfig, names: &[String]) -> Result<(), EngineError> {
    let Some(wanted) = config.model.as_ref().filter(|wanted| !names.contains(wanted)) else { return Ok(()) };
    let what = format!("the server at {} has no model `{wanted}`", client.to().url);
    let has: Vec<String> = names.iter().take(12).map(|n| format!("`{}`", client.clean(n))).collect();
    Err(told(what, &format!("it has {}; set `rollout_server.model`", has.join(", "))))
}

async fn sglang(client: &Client, config: &RolloutsConfig, shape: &Shape) -> Result<Preflight, EngineError> {
    let url = &client.to().url;
    let info: ModelInfo = known(client, "model_info", "SGLang").await?;
    let server: ServerInfo = known(client, "server_info", "SGLang").await?;
    let models: Models = known(client, "v1/models", "SGLang").await?;
    if !info.is_generation || info.weight_version.is_none() {
        let what =
            format!("the server at {url} has a model that does not generate, or no label for its weights");
        return Err(told(what, &format!("use another version of it; allot supports {VERSIONS}")));
    }
    if let Some(other) = info.model_type.filter(|kind| kind != shape.family.name) {
        let (other, own) = (client.clean(&other), shape.family.name);
        let what = format!("the server at {url} has a model of type `{other}`, but `model.use` is a `{own}`");
        return Err(told(what, "serve the model that `[model]` names"));
    }
    // The name at the server's start: loading weights changes the name in `v1/models`.
    named(client, config, &server.served_model_name.into_iter().collect::<Vec<_>>())?;
    let mut notes = Vec::new();
    if !server.enable_deterministic_inference {
        let what = "the server ignores the seeds of rollouts, so a run is not reproducible; start it with \
                    `--enable-deterministic-inference`";
        notes.push(what.to_owned());
    }
    let context = models.data.first().and_then(|m| m.max_model_len);
    Ok(Preflight { version: server.version, context, notes })
}

async fn vllm(
    client: &Client,
    config: &RolloutsConfig,
    sampling: &Sampling,
) -> Result<Preflight, EngineError> {
    let url = &client.to().url;
    let version: Value = known(client, "version", "vLLM").await?;
    let models: Models = known(client, "v1/models", "vLLM").await?;
    let names: Vec<String> = models.data.iter().map(|m| m.id.clone()).collect();
    named(client, config, &names)?;
    let model = models.data.iter().find(|m| config.model.as_ref().is_none_or(|name| *name == m.id));
    // An empty prompt is rejected with 400 or 422 if the endpoint is on; otherwise the error differs.
    let empty = json!({ "token_ids": [], "sampling_params": {} }).to_string();
    match client.ask(vllm::GENERATE, Some(&empty)).await {
        Ok(_) | Err(Failure::Refused { status: 400 | 422, .. }) => {}
        Err(Failure::Stop(error) | Failure::Away(error)) => return Err(error),
        Err(Failure::Lost(_) | Failure::Refused { .. }) => {
            let what = format!("the server at {url} does not accept token ids, `/{}`", vllm::GENERATE);
            return Err(told(what, "start it with `--enable-scale-out`, a vLLM from 0.32 on"));
        }
    }
    let weights = client.ask("weight_info", None).await;
    if let Err(Failure::Stop(error) | Failure::Away(error)) = weights {
        return Err(error);
    }
    if weights.is_err() {
        let what = format!("the server at {url} cannot reload weights, `/weight_info`");
        return Err(told(what, "start it with `VLLM_SERVER_DEV_MODE=1` in its environment"));
    }
    let info: Value = known(client, "server_info?config_format=json", "vLLM").await?;
    let mode = info["vllm_config"]["model_config"]["logprobs_mode"].as_str();
    let wanted = if sampling.temperature == 1.0 { "raw_logprobs" } else { "processed_logprobs" };
    let either = sampling.temperature == 1.0 && sampling.top_k == 0 && sampling.top_p >= 1.0;
    let good = |mode: &str| mode == wanted || either && mode == "processed_logprobs";
    if let Some(mode) = mode.filter(|mode| !good(mode)) {
        let what = format!("the server at {url} returns `{}`", client.clean(mode));
        let why = "the sampling in `[sampling]` needs";
        return Err(told(
            format!("{what}; {why} `{wanted}`"),
            &format!("start it with `--logprobs-mode {wanted}`"),
        ));
    }
    Ok(Preflight {
        version: client.clean(version["version"].as_str().unwrap_or("of no version")),
        context: model.and_then(|m| m.max_model_len),
        notes: Vec::new(),
    })
}
