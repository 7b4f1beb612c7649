//! A model on the server: created, loaded, trained, sampled, saved. It is lost when the server restarts.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use allot_engine::EngineError;
use allot_settings::RemoteConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, Failure, ServerReply, told};
use crate::heartbeat::Heartbeat;
use crate::learn::{PolicyLoss, Stepped};
use crate::protobuf::{Datum, Outcome, PassRequest, Passed, Sampled};

/// The protocol's version: that of the last SDK that accepted all replies as JSON.
const PROTOCOL: &str = "0.24.0";
/// How many times in a row a model is created if the server drops it or does not confirm it.
const MODELS: u32 = 5;

/// A model on the server.
pub(crate) struct Session {
    id: String,
    model: String,
    /// The number of the next request that changes the model.
    next: Cell<u64>,
    /// The number of the next sampler or rollout. These requests change nothing.
    other: Cell<u64>,
    /// Promises since the sampler was created, each for one request.
    promises: RefCell<HashSet<String>>,
    /// The sampler and its version.
    sampler: RefCell<Option<(u32, String)>>,
    _heartbeat: Heartbeat,
}

#[derive(Deserialize)]
struct Promise {
    request_id: String,
}

#[derive(Deserialize)]
struct MadeModel {
    model_id: String,
}

#[derive(Deserialize)]
struct MadeSampler {
    sampling_session_id: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize)]
struct SamplingSession {
    sampling_session_id: String,
}

#[derive(Deserialize)]
struct SavedState {
    path: String,
}

impl Outcome for MadeModel {}
impl Outcome for MadeSampler {}
impl Outcome for SavedState {}

impl Session {
    /// Creates a model, or loads the state saved under a path.
    pub(crate) async fn open(
        client: &Client,
        config: &RemoteConfig,
        seed: u64,
        saved: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut last = None;
        for _ in 0..MODELS {
            match Self::attempt(client, config, seed, saved).await {
                // The reply was lost, not the request: its repetition is not the model's first request.
                Err(Failure::Refused { verb, status, detail }) if detail.contains("LoadWeights") => {
                    last = Some(client.refused(&verb, status, &detail));
                }
                Err(Failure::Lost(detail)) if detail.contains("Checkpoint") => {
                    return Err(Failure::Stop(Self::unfound(client, saved, &detail)));
                }
                // The server restarted just now.
                Err(Failure::Lost(detail)) => last = Some(client.refused("create_model", 404, &detail)),
                other => return other,
            }
        }
        Err(Failure::Stop(last.unwrap_or_else(|| client.refused("load_weights", 400, ""))))
    }

    fn unfound(client: &Client, saved: Option<&str>, detail: &str) -> EngineError {
        let (url, path) = (&client.to().url, saved.unwrap_or_default());
        let what = format!("the server at {url} no longer has the state `{path}`: {detail}");
        told(
            what,
            "check its folder of checkpoints, which may have been moved or cleared, or use an earlier \
             checkpoint",
        )
    }

    async fn attempt(
        client: &Client,
        config: &RemoteConfig,
        seed: u64,
        saved: Option<&str>,
    ) -> Result<Self, Failure> {
        let id = Self::create(client, config).await?;
        let session = Self {
            _heartbeat: Heartbeat::of(client, &id).map_err(Failure::Stop)?,
            id,
            model: String::new(),
            next: Cell::new(1),
            other: Cell::new(1),
            promises: RefCell::default(),
            sampler: RefCell::default(),
        };
        let body = json!({
            "type": "create_model",
            "session_id": session.id,
            "model_seq_id": 0,
            "base_model": config.base_model,
            "lora_config": { "rank": config.lora_rank, "seed": seed & 0x7fff_ffff },
        });
        let made: MadeModel =
            session.done(client, "create_model", &body).await.map_err(|failure| match failure {
                Failure::Refused { status, detail, .. } => {
                    Failure::Stop(Self::unmade(config, status, &detail))
                }
                failure => failure,
            })?;
        let session = Self { model: made.model_id, ..session };
        if let Some(path) = saved {
            let body = json!({
                "type": "load_weights",
                "model_id": session.model,
                "path": path,
                "optimizer": true,
                "seq_id": session.number(),
            });
            let _: Value = session.done(client, "load_weights", &body).await?;
        }
        Ok(session)
    }

    /// Creates a session without a model. Returns its name.
    async fn create(client: &Client, config: &RemoteConfig) -> Result<String, Failure> {
        let body = json!({
            "type": "create_session",
            "tags": ["allot"],
            "user_metadata": null,
            "sdk_version": PROTOCOL,
        });
        let answer =
            client.ask("create_session", Some(&body.to_string())).await.map_err(|failure| match failure {
                Failure::Lost(_) => client.wrong("create_session", "404"),
                failure => failure,
            })?;
        let said: Value = client.read("create_session", &answer)?;
        if let Some(error) = said["error_message"].as_str() {
            let what = format!("the server at {} refused a session: {error}", config.url);
            return Err(Failure::Stop(told(what, "check which protocol version it speaks")));
        }
        match said["session_id"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(client.wrong("create_session", "no `session_id`")),
        }
    }

    fn unmade(config: &RemoteConfig, status: u16, detail: &str) -> EngineError {
        let what = format!(
            "the server at {} could not make a model of `{}` ({status})",
            config.url, config.base_model
        );
        let what = if detail.is_empty() { what } else { format!("{what}: {detail}") };
        told(what, "try again in a few minutes: the server may hold as many models of this rank as it can")
    }

    /// Returns the number of a request that changes the model. Retries use the same number.
    pub(crate) fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Sends a request and waits for its outcome.
    async fn done<T: Outcome>(&self, client: &Client, verb: &str, body: &Value) -> Result<T, Failure> {
        let answer = client.ask(verb, Some(&body.to_string())).await?;
        self.outcome(client, verb, &answer).await
    }

    /// Waits for the outcome that a reply promises.
    async fn outcome<T: Outcome>(
        &self,
        client: &Client,
        verb: &str,
        answer: &ServerReply,
    ) -> Result<T, Failure> {
        let promise: Promise = client.read(verb, answer)?;
        if !self.promises.borrow_mut().insert(promise.request_id.clone()) {
            return Err(client.wrong(verb, "the answer to another request"));
        }
        client.fetch(verb, &promise.request_id).await
    }

    /// Runs sequences through the model. With a loss, gradients are accumulated on the server. Without one,
    /// only log-probabilities are returned.
    pub(crate) async fn pass(
        &self,
        client: &Client,
        data: Vec<Datum>,
        loss: Option<&PolicyLoss>,
    ) -> Result<Passed, Failure> {
        let request = PassRequest {
            model_id: self.model.clone(),
            seq_id: self.number(),
            data,
            loss_fn: loss.map_or("cross_entropy", |loss| loss.name).to_owned(),
            loss_fn_config: loss.map(|loss| loss.numbers.to_vec()).unwrap_or_default(),
            forward_only: loss.is_none(),
        };
        let verb = request.verb();
        let answer = client.pass(request).await?;
        self.outcome(client, verb, &answer).await
    }

    /// Makes a step of the optimizer.
    pub(crate) async fn step(&self, client: &Client, adam: Value) -> Result<Stepped, Failure> {
        let body = json!({ "model_id": self.model, "seq_id": self.number(), "adam_params": adam });
        self.done(client, "optim_step", &body).await
    }

    /// Saves weights and optimizer under a name. Returns the server's path to them.
    pub(crate) async fn save(&self, client: &Client, name: &str) -> Result<String, Failure> {
        let mut n = 0;
        loop {
            // If the reply to a first request was lost, the name belongs to an unknown state.
            let name = if n == 0 { name.to_owned() } else { format!("{name}-{n}") };
            let body = json!({
                "type": "save_weights",
                "model_id": self.model,
                "path": name,
                "seq_id": self.number(),
            });
            match self.done::<SavedState>(client, "save_weights", &body).await {
                Err(Failure::Refused { status: 409, .. }) if n < 9 => n += 1,
                other => return Ok(other?.path),
            }
        }
    }

    /// Returns the sampler of the current weights, which have this version.
    pub(crate) async fn sampler(&self, client: &Client, version: u32) -> Result<String, Failure> {
        let before = self.sampler.borrow().clone();
        if let Some((at, id)) = &before
            && *at == version
        {
            return Ok(id.clone());
        }
        // All earlier promises were fulfilled. A run makes millions of them.
        self.promises.borrow_mut().clear();
        let mut tries = 0;
        let made: MadeSampler = loop {
            let body = json!({
                "type": "save_weights_for_sampler",
                "model_id": self.model,
                "sampling_session_seq_id": self.other.replace(self.other.get() + 1),
                "seq_id": self.number(),
            });
            match self.done(client, "save_weights_for_sampler", &body).await {
                Err(Failure::Refused { status: 409, .. }) if tries < 9 => tries += 1,
                other => break other?,
            }
        };
        let id = match (made.sampling_session_id, made.path) {
            (Some(id), _) => id,
            (None, Some(path)) => {
                let body = json!({
                    "type": "create_sampling_session",
                    "session_id": self.id,
                    "sampling_session_seq_id": self.other.replace(self.other.get() + 1),
                    "model_path": path,
                });
                let answer = client.ask("create_sampling_session", Some(&body.to_string())).await?;
                client.read::<SamplingSession>("create_sampling_session", &answer)?.sampling_session_id
            }
            (None, None) => {
                return Err(client.wrong("save_weights_for_sampler", "neither a session nor a path"));
            }
        };
        if before.is_some_and(|(_, old)| old == id) {
            let what = format!("the sampler of an earlier version than {version}");
            return Err(client.wrong("save_weights_for_sampler", &what));
        }
        *self.sampler.borrow_mut() = Some((version, id.clone()));
        Ok(id)
    }

    /// Samples with a sampler.
    pub(crate) async fn sample(
        &self,
        client: &Client,
        sampler: &str,
        mut body: Value,
    ) -> Result<Sampled, Failure> {
        body["type"] = json!("sample");
        body["sampling_session_id"] = json!(sampler);
        body["seq_id"] = json!(self.other.replace(self.other.get() + 1));
        // Thousands of requests wait at a time, and tokens need less memory as text than as values.
        let text = body.to_string();
        drop(body);
        let answer = client.ask("asample", Some(&text)).await?;
        drop(text);
        self.outcome(client, "asample", &answer).await
    }
}
