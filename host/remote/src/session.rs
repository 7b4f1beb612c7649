//! A model on the server: made, loaded, asked, saved. What is in here is gone when the server is.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use allot_engine::EngineError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::{Client, Failure, Heard, told};
use crate::config::RemoteConfig;
use crate::heartbeat::Heartbeat;

/// The version of the protocol that is spoken: of the last SDK that took all answers as JSON.
const PROTOCOL: &str = "0.24.0";
/// How often a model is made in a row, where a server takes it away again or does not say what became of it.
const MODELS: u32 = 5;

/// A model on the server.
pub(crate) struct Session {
    id: String,
    model: String,
    /// The number of the next request that changes the model.
    next: Cell<u64>,
    /// The number of the next sampler or rollout: requests that change nothing.
    other: Cell<u64>,
    /// Promises that were given since the sampler was made, each for one request.
    promises: RefCell<HashSet<String>>,
    /// The sampler, and the version that it is of.
    sampler: RefCell<Option<(u32, String)>>,
    _heartbeat: Heartbeat,
}

#[derive(Deserialize)]
struct Promise {
    request_id: String,
}

#[derive(Deserialize)]
struct Made {
    model_id: String,
}

#[derive(Deserialize)]
struct Sampler {
    sampling_session_id: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize)]
struct SamplingSession {
    sampling_session_id: String,
}

#[derive(Deserialize)]
struct Saved {
    path: String,
}

impl Session {
    /// A fresh model, or one in the state that was saved under a path.
    pub(crate) async fn open(
        client: &Client,
        config: &RemoteConfig,
        seed: u64,
        saved: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut last = None;
        for _ in 0..MODELS {
            match Self::attempt(client, config, seed, saved).await {
                // The request came through and its answer did not: it is no longer the model's first.
                Err(Failure::Refused { verb, status, detail }) if detail.contains("LoadWeights") => {
                    last = Some(client.refused(&verb, status, &detail));
                }
                Err(Failure::Lost(detail)) if detail.contains("Checkpoint") => {
                    return Err(Failure::Stop(Self::unfound(client, saved, &detail)));
                }
                // It was started anew just now.
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
            "its folder of checkpoints may have been moved or cleared; an earlier checkpoint names another",
        )
    }

    async fn attempt(
        client: &Client,
        config: &RemoteConfig,
        seed: u64,
        saved: Option<&str>,
    ) -> Result<Self, Failure> {
        let body = json!({
            "type": "create_session",
            "tags": ["allot"],
            "user_metadata": null,
            "sdk_version": PROTOCOL,
        });
        let answer =
            client.ask("create_session", Some(&body.to_string())).await.map_err(|failure| match failure {
                Failure::Lost(_) => client.wrong("create_session", "404, as if it did not know it"),
                failure => failure,
            })?;
        let said: Value = client.read("create_session", &answer)?;
        if let Some(error) = said["error_message"].as_str() {
            let what = format!("the server at {} wants no session with allot: {error}", config.url);
            return Err(Failure::Stop(told(what, "it may speak another version of the protocol")));
        }
        let Some(id) = said["session_id"].as_str() else {
            return Err(client.wrong("create_session", "no `session_id`"));
        };
        let session = Self {
            id: id.to_owned(),
            model: String::new(),
            next: Cell::new(1),
            other: Cell::new(1),
            promises: RefCell::default(),
            sampler: RefCell::default(),
            _heartbeat: Heartbeat::of(client, id).map_err(Failure::Stop)?,
        };
        let body = json!({
            "type": "create_model",
            "session_id": session.id,
            "model_seq_id": 0,
            "base_model": config.base_model,
            "lora_config": { "rank": config.lora_rank, "seed": seed & 0x7fff_ffff },
        });
        let made: Made =
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

    fn unmade(config: &RemoteConfig, status: u16, detail: &str) -> EngineError {
        let what = format!(
            "the server at {} could not make a model of `{}` ({status})",
            config.url, config.base_model
        );
        let what = if detail.is_empty() { what } else { format!("{what}: {detail}") };
        told(
            what,
            "a server holds so many models of such a rank; those of sessions that ended go after minutes",
        )
    }

    /// The number of a request that changes the model. It stays the same however often that is asked.
    pub(crate) fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Asks for something, and waits for it.
    async fn done<T: DeserializeOwned>(
        &self,
        client: &Client,
        verb: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let answer = match verb {
            "forward" | "forward_backward" => client.pass(verb, body).await?,
            _ => client.ask(verb, Some(&body.to_string())).await?,
        };
        let promise = self.promised(client, verb, &answer)?;
        client.fetch(verb, &promise).await
    }

    async fn promise(&self, client: &Client, verb: &str, body: &str) -> Result<String, Failure> {
        let answer = client.ask(verb, Some(body)).await?;
        self.promised(client, verb, &answer)
    }

    /// The name of what an answer promises.
    fn promised(&self, client: &Client, verb: &str, answer: &Heard) -> Result<String, Failure> {
        let promise: Promise = client.read(verb, answer)?;
        if !self.promises.borrow_mut().insert(promise.request_id.clone()) {
            return Err(client.wrong(verb, "the promise of another request"));
        }
        Ok(promise.request_id)
    }

    /// Changes the model, or asks it: `what` is the part of the body that goes with the verb.
    pub(crate) async fn train<T: DeserializeOwned>(
        &self,
        client: &Client,
        verb: &str,
        key: &str,
        what: Value,
    ) -> Result<T, Failure> {
        let body = json!({ "model_id": self.model, "seq_id": self.number(), key: what });
        self.done(client, verb, &body).await
    }

    /// Saves weights and optimizer under a name. Gives the server's path to them.
    pub(crate) async fn save(&self, client: &Client, name: &str) -> Result<String, Failure> {
        let mut n = 0;
        loop {
            // Where the answer to a first request was lost, the name is taken, and nobody knows by what.
            let name = if n == 0 { name.to_owned() } else { format!("{name}-{n}") };
            let body = json!({
                "type": "save_weights",
                "model_id": self.model,
                "path": name,
                "seq_id": self.number(),
            });
            match self.done::<Saved>(client, "save_weights", &body).await {
                Err(Failure::Refused { status: 409, .. }) if n < 9 => n += 1,
                other => return Ok(other?.path),
            }
        }
    }

    /// The sampler of the weights of now, which are of this version.
    pub(crate) async fn sampler(&self, client: &Client, version: u32) -> Result<String, Failure> {
        let before = self.sampler.borrow().clone();
        if let Some((at, id)) = &before
            && *at == version
        {
            return Ok(id.clone());
        }
        // Those of an earlier version were all kept. A run makes millions.
        self.promises.borrow_mut().clear();
        let mut tries = 0;
        let made: Sampler = loop {
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

    /// Samples by a sampler.
    pub(crate) async fn sample<T: DeserializeOwned>(
        &self,
        client: &Client,
        sampler: &str,
        mut body: Value,
    ) -> Result<T, Failure> {
        body["type"] = json!("sample");
        body["sampling_session_id"] = json!(sampler);
        body["seq_id"] = json!(self.other.replace(self.other.get() + 1));
        // Thousands of these wait for their turn at a time, and a token takes less room as text than as a value.
        let text = body.to_string();
        drop(body);
        let promise = self.promise(client, "asample", &text).await?;
        drop(text);
        client.fetch("asample", &promise).await
    }
}
