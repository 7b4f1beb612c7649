//! vLLM's requests: `/inference/v1/generate`, and its workers' `reload_weights`. As of 0.32.0, read on
//! 2026-11-22. Both are off unless the server is started with them: see docs/how-to/scaling.md.

use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{RolloutReply, SampleRequest};
use crate::client::{Client, Failure, RequestBody, ServerReply};
use crate::sample::ClaimedRollout;

pub(super) const GENERATE: &str = "inference/v1/generate";

/// Its value for a log-probability that is not finite.
const NONE: f32 = -9999.0;
/// The label of partly loaded weights.
const BROKEN: &str = "broken";

/// The reply to `generate`.
#[derive(Deserialize)]
struct Generated {
    choices: Vec<Choice>,
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Vec<u32>,
    logprobs: Option<LogProbs>,
    weight_versions: Option<Vec<Span>>,
}

#[derive(Deserialize)]
struct LogProbs {
    content: Option<Vec<Scored>>,
}

#[derive(Deserialize)]
struct Scored {
    token_id: u32,
    logprob: Option<f32>,
}

#[derive(Deserialize)]
struct Span {
    version: String,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: usize,
}

/// Returns a request's body. The server ignores its own end token, because the body names all ends. Replies
/// include the stop token.
pub(super) fn body(request: SampleRequest<'_>, model: Option<&str>) -> Value {
    let mut body = json!({
        "token_ids": request.prompt,
        "sampling_params": {
            "detokenize": false,
            "ignore_eos": true,
            "logprobs": 0,
            "max_tokens": request.sampling.max_tokens,
            "seed": request.seed,
            "stop_token_ids": request.stops.tokens(),
            "temperature": request.sampling.temperature,
            "top_k": request.sampling.top_k,
            "top_p": request.sampling.top_p,
        },
    });
    if !request.stops.texts().is_empty() {
        // The server looks for stop texts only if it detokenizes.
        body["sampling_params"]["stop"] = json!(request.stops.texts());
        body["sampling_params"]["detokenize"] = json!(true);
    }
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    body
}

/// Parses a reply.
pub(super) fn told(client: &Client, answer: &ServerReply) -> Result<RolloutReply, Failure> {
    let Generated { choices, usage } = client.read(GENERATE, answer)?;
    let Ok([choice]) = <[Choice; 1]>::try_from(choices) else {
        return Err(client.wrong(GENERATE, "a different number of rollouts from the one requested"));
    };
    let scored = choice.logprobs.and_then(|l| l.content);
    if let Some(scored) = &scored
        && scored.len() == choice.token_ids.len()
        && scored.iter().zip(&choice.token_ids).any(|(scored, id)| scored.token_id != *id)
    {
        return Err(client.wrong(GENERATE, "log-probabilities of tokens that it did not sample"));
    }
    let end = choice.finish_reason.unwrap_or_default();
    let claim = ClaimedRollout {
        tokens: choice.token_ids,
        log_probs: scored.map(|s| s.into_iter().map(|s| s.logprob.filter(|l| *l > NONE)).collect()),
        truncated: end == "length",
    };
    let weights = choice.weight_versions.unwrap_or_default().into_iter().map(|s| s.version).collect();
    let broken = (end != "stop" && end != "length").then_some(end);
    Ok(RolloutReply { claim, prompt: usage.prompt_tokens, broken, weights })
}

/// Loads weights. Nothing is generated meanwhile, and other clients' requests are aborted.
///
/// The label is set first. A server that restarts in between loses the label with the weights. If the label
/// were set afterwards, it could name the weights of a restart. If loading fails, the label is withdrawn,
/// because the server does not return to its previous weights.
pub(super) async fn load(client: &Client, folder: &str, label: &str) -> Result<(), Failure> {
    let (verb, name) = ("update_weight_version", |label: &str| json!({ "new_version": label }).to_string());
    client.ask("pause", Some("{}")).await?;
    client.ask(verb, Some(&name(label))).await?;
    let body = json!({ "method": "reload_weights", "kwargs": { "weights_path": folder } }).to_string();
    if let Err(failure) = client.ask_whole("collective_rpc", &body).await {
        // The server may have ended by now, and its label with it.
        let _ = client.once(verb, Some(RequestBody::Json(&name(BROKEN)))).await;
        let _ = client.once("resume", Some(RequestBody::Json("{}"))).await;
        return Err(failure);
    }
    client.ask("resume", Some("{}")).await.map(|_| ())
}
