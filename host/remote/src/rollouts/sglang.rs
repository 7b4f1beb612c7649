//! SGLang's requests: `/generate`, and weights from disk. As of 0.5.23, read on 2026-11-22.

use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{RolloutReply, SampleRequest};
use crate::client::{Client, Failure, RequestBody, ServerReply};
use crate::sample::ClaimedRollout;

pub(super) const GENERATE: &str = "generate";

/// The reply to `generate`.
#[derive(Deserialize)]
struct Generated {
    output_ids: Vec<u32>,
    meta_info: Meta,
}

#[derive(Deserialize)]
struct Meta {
    finish_reason: Finish,
    prompt_tokens: usize,
    /// The label of the weights at the end.
    weight_version: Option<String>,
    /// The labels of all weights that it was sampled with, if there were several.
    #[serde(default)]
    weight_versions: Vec<Span>,
    /// Log-probability, token, and an unused field. `null` is a number that is not finite.
    output_token_logprobs: Option<Vec<(Option<f32>, u32, Value)>>,
}

#[derive(Deserialize)]
struct Finish {
    #[serde(rename = "type")]
    kind: String,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Span {
    version: String,
}

#[derive(Deserialize)]
struct Loaded {
    success: bool,
    message: Option<String>,
}

/// Returns a request's body. Seeds need deterministic inference. Replies include the stop token.
pub(super) fn body(request: SampleRequest<'_>) -> Value {
    let top_k = if request.sampling.top_k == 0 { json!(-1) } else { json!(request.sampling.top_k) };
    let mut body = json!({
        "input_ids": request.prompt,
        "return_logprob": true,
        "sampling_params": {
            "max_new_tokens": request.sampling.max_tokens,
            "sampling_seed": request.seed,
            "skip_special_tokens": false,
            "stop_token_ids": request.stops.tokens(),
            "temperature": request.sampling.temperature,
            "top_k": top_k,
            "top_p": request.sampling.top_p,
        },
    });
    if !request.stops.texts().is_empty() {
        body["sampling_params"]["stop"] = json!(request.stops.texts());
    }
    body
}

/// Parses a reply.
pub(super) fn told(client: &Client, answer: &ServerReply) -> Result<RolloutReply, Failure> {
    let Generated { output_ids, meta_info: meta } = client.read(GENERATE, answer)?;
    let scored = meta.output_token_logprobs;
    if let Some(scored) = &scored
        && scored.len() == output_ids.len()
        && scored.iter().zip(&output_ids).any(|((_, token, _), id)| token != id)
    {
        return Err(client.wrong(GENERATE, "log-probabilities of tokens that it did not sample"));
    }
    let Finish { kind, message } = meta.finish_reason;
    let broken = (kind != "stop" && kind != "length")
        .then(|| message.map_or_else(|| kind.clone(), |message| format!("{kind}: {message}")));
    let claim = ClaimedRollout {
        tokens: output_ids,
        log_probs: scored.map(|scored| scored.into_iter().map(|(l, _, _)| l).collect()),
        truncated: kind == "length",
    };
    let weights = meta.weight_versions.into_iter().map(|s| s.version).chain(meta.weight_version).collect();
    Ok(RolloutReply { claim, prompt: meta.prompt_tokens, broken, weights })
}

/// Loads weights. Nothing is generated meanwhile, and other clients' requests are aborted.
pub(super) async fn load(client: &Client, folder: &str, label: &str) -> Result<(), Failure> {
    client.ask("pause_generation", Some(&json!({ "mode": "abort" }).to_string())).await?;
    let body = json!({ "model_path": folder, "weight_version": label, "flush_cache": true }).to_string();
    let verb = "update_weights_from_disk";
    let loaded = client.ask_whole(verb, &body).await;
    if let Err(failure) = loaded {
        // If the server still runs, it keeps its previous weights.
        let _ = client.once("continue_generation", Some(RequestBody::Json("{}"))).await;
        return Err(failure);
    }
    client.ask("continue_generation", Some("{}")).await?;
    let loaded: Loaded = client.read(verb, &loaded?)?;
    if loaded.success {
        return Ok(());
    }
    let detail = client.clean(&loaded.message.unwrap_or_default());
    Err(Failure::Refused { verb: verb.to_owned(), status: 200, detail })
}
