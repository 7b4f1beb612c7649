//! A sampling server of any kind: requests rollouts, loads weights and checks replies.

use std::time::Instant;

use allot_engine::{Answer, End, Native, Sample, Sampling};
use allot_settings::rollouts::{RolloutsConfig, ServerKind};
use serde_json::Value;

use super::handover::OURS;
use super::request::{RolloutReply, SampleRequest};
use super::{sglang, vllm};
use crate::client::{Client, Failure, told};
use crate::sample::{RolloutKey, RolloutLimits, wire};

pub(crate) struct Sampler {
    pub(crate) client: Client,
    kind: ServerKind,
    model: Option<String>,
}

/// Why there is no rollout.
pub(crate) enum Missed {
    /// It was sampled with these weights, which are not the requested ones.
    Weights(String),
    /// Another failure.
    Failure(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Sampler {
    /// Returns the server of this client.
    pub(crate) fn new(client: Client, config: &RolloutsConfig) -> Self {
        Self { client, kind: config.kind, model: config.model.clone() }
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            ServerKind::Sglang => sglang::GENERATE,
            ServerKind::Vllm => vllm::GENERATE,
        }
    }

    /// Loads weights from a folder, given by the server's path, under a label.
    pub(crate) async fn load(&self, folder: &str, label: &str) -> Result<(), Failure> {
        let loaded = match self.kind {
            ServerKind::Sglang => sglang::load(&self.client, folder, label).await,
            ServerKind::Vllm => vllm::load(&self.client, folder, label).await,
        };
        loaded.map_err(|failure| match known(failure, "load") {
            Failure::Refused { verb, status, detail } => {
                let what = format!("the server at {} could not load `{folder}`", self.client.to().url);
                let said = if detail.is_empty() { String::new() } else { format!(": {detail}") };
                let hint = "check its log, that it can read the folder at that path \
                            (`rollout_server.weights_there`), and that it serves the model that is trained";
                Failure::Stop(told(format!("{what} (`{verb}`, {status}){said}"), hint))
            }
            failure => failure,
        })
    }

    /// Asks for a rollout, or a turn of one, after these tokens. The engine says how it may end and what its signals are.
    pub(crate) async fn ask(
        &self,
        native: &Native,
        (tokens, seed, sampling): (&[u32], u64, Sampling),
        place: RolloutKey,
        label: &str,
    ) -> Result<Sample<Answer>, Missed> {
        let config = native.config();
        let request = SampleRequest { prompt: tokens, seed: wire(seed), sampling, stops: &config.stops };
        let limits = RolloutLimits {
            vocabulary: native.core().shape().vocabulary,
            longest: sampling.max_tokens as usize,
            signals: config.signals.len(),
        };
        self.rollout(request, place, limits, label).await
    }

    /// Returns a rollout sampled with a label's weights. Repeats a request that the server aborts.
    async fn rollout(
        &self,
        request: SampleRequest<'_>,
        place: RolloutKey,
        limits: RolloutLimits,
        label: &str,
    ) -> Result<Sample<Answer>, Missed> {
        let (verb, body) = (self.verb(), self.body(request).to_string());
        let (began, mut pauses) = (Instant::now(), self.client.pauses());
        loop {
            let answer = self.client.ask(verb, Some(&body)).await.map_err(|failure| known(failure, verb))?;
            let told = match self.kind {
                ServerKind::Sglang => sglang::told(&self.client, &answer)?,
                ServerKind::Vllm => vllm::told(&self.client, &answer)?,
            };
            if let Some(other) = told.weights.iter().find(|l| *l != label) {
                return Err(self.other(verb, other, label));
            }
            if told.weights.is_empty() {
                let what = "a rollout without the label of its weights";
                return Err(self.client.wrong(verb, what).into());
            }
            let Some(end) = &told.broken else {
                return self.looked_at(told, request, place, limits).map_err(Missed::Failure);
            };
            if began.elapsed() >= self.client.to().patience {
                let why = format!("rollouts end by `{}`", self.client.clean(end));
                return Err(Failure::Away(self.client.away(verb, &why)).into());
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    fn body(&self, request: SampleRequest<'_>) -> Value {
        match self.kind {
            ServerKind::Sglang => sglang::body(request),
            ServerKind::Vllm => vllm::body(request, self.model.as_deref()),
        }
    }

    /// Handles weights other than those handed over. A restart can't bring another run's weights.
    fn other(&self, verb: &str, other: &str, label: &str) -> Missed {
        if !other.starts_with(OURS) {
            return Missed::Weights(self.client.clean(other));
        }
        let what = format!(
            "the server at {} answered `{verb}` with the weights `{}`; expected `{label}`",
            self.client.to().url,
            self.client.clean(other)
        );
        Missed::Failure(Failure::Stop(told(what, "use a server for one run at a time")))
    }

    /// Returns the rollout if it is valid for the request.
    fn looked_at(
        &self,
        told: RolloutReply,
        request: SampleRequest<'_>,
        place: RolloutKey,
        limits: RolloutLimits,
    ) -> Result<Sample<Answer>, Failure> {
        let wrong = |what: &str| Err(self.client.wrong(self.verb(), what));
        let number = place.prompt.0;
        if told.prompt != request.prompt.len() {
            let (read, whole) = (told.prompt, request.prompt.len());
            return wrong(&format!("a rollout of prompt {number} that read {read} of its {whole} tokens"));
        }
        let cut = told.claim.truncated;
        let sample = told.claim.cut(request.stops).looked_at(place, limits);
        let mut sample = sample.map_err(|what| self.client.wrong(self.verb(), &what))?;
        let tokens = &sample.answer.tokens;
        let end = request.stops.end(tokens).map(End::at);
        if let Some(end) = end.filter(|end| end + 1 < tokens.len()) {
            let token = tokens[end];
            return wrong(&format!(
                "a rollout of prompt {number} that continues after its end, token {token}"
            ));
        }
        if end.is_none() && !cut {
            let last = tokens[tokens.len() - 1];
            let what = format!(
                "the server at {} ended a rollout of prompt {number} at token {last}, which is not a stop \
                 token here",
                self.client.to().url
            );
            let hint = "add it to `model.stop`, or serve the model that `[model]` names: the served one has \
                        other stop tokens";
            return Err(Failure::Stop(crate::client::told(what, hint)));
        }
        if end.is_none() && tokens.len() < limits.longest {
            let (came, most) = (tokens.len(), limits.longest);
            return wrong(&format!(
                "a rollout of prompt {number} that was cut after {came} tokens; the limit is {most}"
            ));
        }
        // An end token at the limit counts as an end.
        sample.truncated = end.is_none();
        Ok(sample)
    }
}

/// Turns the loss of a verb into a refusal: the server does not have this verb.
fn known(failure: Failure, verb: &str) -> Failure {
    match failure {
        Failure::Lost(detail) => Failure::Refused { verb: verb.to_owned(), status: 404, detail },
        failure => failure,
    }
}
