//! The way to a server and back: one exchange, the same again after a pause where that may help, and what
//! goes wrong in words.

use std::cell::Cell;
use std::error::Error as _;
use std::time::{Duration, Instant};

use allot_engine::EngineError;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use rustls::crypto::{CryptoProvider, ring};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::config::{RemoteConfig, is_loopback};
use crate::protobuf;

/// The longest pause before something is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause while a server is at it: what is done should not wait to be fetched.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a server may be away when a run is about to start.
const AT_FIRST: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 1 << 30;

/// A line to a server.
pub(crate) struct Line {
    client: Client,
    config: RemoteConfig,
    key: Option<Key>,
    patience: Duration,
    /// As many as there may be exchanges at a time. Who comes first is served first.
    turns: Semaphore,
    notice: fn(&str),
    /// Whether it was said that the server is away: once, however many requests wait for it.
    away: Cell<bool>,
    /// Whether the server has refused JSON where newer ones want protobuf.
    newer: Cell<bool>,
}

/// What opens the server. It has no `Debug`, so that it is never shown.
#[derive(Clone)]
struct Key {
    text: String,
    header: HeaderValue,
}

/// Why something was not done.
pub(crate) enum Failure {
    /// The server no longer has what it was asked about.
    Lost(String),
    /// The server will not.
    Refused {
        /// What it was asked.
        verb: String,
        /// Its status.
        status: u16,
        /// Its own words.
        detail: String,
    },
    /// The run stops.
    Stop(EngineError),
}

/// What is said in one exchange.
#[derive(Clone, Copy)]
pub(crate) enum Said<'a> {
    Json(&'a str),
    Protobuf(&'a [u8]),
}

/// What one exchange brought.
pub(crate) struct Heard {
    status: StatusCode,
    /// Whether it is protobuf, and not JSON.
    protobuf: bool,
    body: Vec<u8>,
}

impl Line {
    /// A line to a server. Nothing is said yet. `notice` is called when the server is away, and when it is back.
    pub(crate) fn open(config: &RemoteConfig, notice: fn(&str)) -> Result<Self, EngineError> {
        if CryptoProvider::get_default().is_none() {
            // Fails only where someone else was faster.
            let _ = ring::default_provider().install_default();
        }
        let key = config.api_key_env.as_deref().map(Key::read).transpose()?;
        let builder = Client::builder()
            .user_agent(concat!("allot/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs_f64(config.request_seconds.min(10.0)))
            .timeout(Duration::from_secs_f64(config.request_seconds))
            .pool_max_idle_per_host(config.connections as usize)
            // A key is for one server, wherever that one points.
            .redirect(reqwest::redirect::Policy::none());
        let near = Url::parse(&config.url).is_ok_and(|url| is_loopback(&url));
        // A proxy would look for this machine's own server on its own.
        let builder = if near { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| {
            let what = format!("could not make ready to reach {}: {}", config.url, root(&error));
            told(what, "the certificates that are trusted come from the system: Debian's `ca-certificates`")
        })?;
        Ok(Self {
            client,
            config: config.clone(),
            key,
            patience: config.patience(),
            turns: Semaphore::new(config.connections as usize),
            notice,
            away: Cell::new(false),
            newer: Cell::new(false),
        })
    }

    /// Another line to the same server, for another thread.
    pub(crate) fn again(&self) -> Result<Self, EngineError> {
        Self::open(&self.config, |_| ())
    }

    pub(crate) fn config(&self) -> &RemoteConfig {
        &self.config
    }

    pub(crate) fn notice(&self, words: &str) {
        (self.notice)(words);
    }

    /// One exchange. Where nothing is said it is a GET.
    pub(crate) async fn once(&self, verb: &str, said: Option<Said<'_>>) -> Result<Heard, reqwest::Error> {
        let url = format!("{}/api/v1/{verb}", self.config.url.trim_end_matches('/'));
        let mut request = match said {
            Some(Said::Json(body)) => {
                self.client.post(url).header(CONTENT_TYPE, "application/json").body(body.to_owned())
            }
            Some(Said::Protobuf(body)) => {
                self.client.post(url).header(CONTENT_TYPE, protobuf::CONTENT).body(body.to_vec())
            }
            None => self.client.get(url),
        };
        if let Some(key) = &self.key {
            request = request.header("x-api-key", key.header.clone());
        }
        let mut response = request.send().await?;
        let (status, mut body) = (response.status(), Vec::new());
        let content = response.headers().get(CONTENT_TYPE);
        let protobuf = content.is_some_and(|c| c.as_bytes().starts_with(protobuf::CONTENT.as_bytes()));
        while let Some(part) = response.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST_ANSWER {
                break;
            }
        }
        Ok(Heard { status, protobuf, body })
    }

    /// Removes something that nobody needs any more. Where that fails it only takes up room.
    pub(crate) async fn remove(&self, path: &str) {
        let url = format!("{}/api/v1/{path}", self.config.url.trim_end_matches('/'));
        let mut request = self.client.delete(url);
        if let Some(key) = &self.key {
            request = request.header("x-api-key", key.header.clone());
        }
        let _ = request.send().await;
    }

    /// Asks until there is an answer that says something, or patience is at its end.
    pub(crate) async fn ask(&self, verb: &str, body: Option<&str>) -> Result<Heard, Failure> {
        self.say(verb, body.map(Said::Json)).await
    }

    /// Asks for `forward` or `forward_backward`: in JSON, until the server is found to know only the newer
    /// way, in which both are one request as protobuf.
    pub(crate) async fn pass(&self, verb: &str, body: &Value) -> Result<Heard, Failure> {
        if !self.newer.get() {
            let text = body.to_string();
            match self.ask(verb, Some(&text)).await {
                Err(Failure::Refused { status: 415, .. }) => {}
                // What a server says that has no such request at all, and not that it lost the model.
                Err(Failure::Lost(detail)) if verb == "forward" && detail == "Not Found" => {}
                other => return other,
            }
            self.newer.set(true);
        }
        let message = protobuf::passed(body, verb == "forward");
        self.say("forward_backward", Some(Said::Protobuf(&message))).await
    }

    async fn say(&self, verb: &str, said: Option<Said<'_>>) -> Result<Heard, Failure> {
        let (mut began, mut pauses) = (None, self.pauses());
        let url = &self.config.url;
        loop {
            let turn = self.turns.acquire().await;
            // Waiting for a turn is no fault of the server's.
            let began = *began.get_or_insert_with(Instant::now);
            let heard = self.once(verb, said).await;
            drop(turn);
            let why = match heard {
                Ok(heard) if heard.body.len() > LONGEST_ANSWER => {
                    return Err(self.wrong(verb, "more than a gigabyte"));
                }
                Ok(heard) if heard.status.is_success() => {
                    if self.away.replace(false) {
                        self.notice(&format!("the server at {url} is back"));
                    }
                    return Ok(heard);
                }
                Ok(heard) => {
                    let detail = self.detail(&heard.body);
                    match heard.status.as_u16() {
                        401 | 403 => return Err(Failure::Stop(self.locked(heard.status))),
                        404 | 410 => return Err(Failure::Lost(detail)),
                        // Still at it: that is no trouble yet.
                        408 if verb == "retrieve_future" => String::new(),
                        408 | 425 | 429 | 500.. => format!("it answers {}{}", heard.status, dash(&detail)),
                        status => {
                            return Err(Failure::Refused { verb: verb.to_owned(), status, detail });
                        }
                    }
                }
                Err(error) if error.is_timeout() && verb == "retrieve_future" => String::new(),
                Err(error) => words(&error),
            };
            if began.elapsed() >= self.patience {
                let why = if why.is_empty() { "it has not done what it was asked".to_owned() } else { why };
                return Err(Failure::Stop(self.away(verb, &why)));
            }
            if !why.is_empty() && !self.away.replace(true) {
                let most = self.patience.as_secs_f64();
                let what = format!("the server at {url} does not do `{verb}`: {why}");
                self.notice(&format!("{what}; it is asked again for up to {most} s"));
            }
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Waits for what was promised.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, verb: &str, promise: &str) -> Result<T, Failure> {
        let (began, mut pauses) = (Instant::now(), self.pauses());
        let body = json!({ "request_id": promise }).to_string();
        loop {
            let answer = match self.ask("retrieve_future", Some(&body)).await {
                Ok(answer) => answer,
                // What was promised has failed.
                Err(Failure::Refused { status, detail, .. }) => return Err(failed(verb, status, detail)),
                Err(failure) => return Err(failure),
            };
            let value: Value = self.read(verb, &answer)?;
            if value["type"] == "try_again" {
                if value["request_id"].as_str().is_some_and(|id| id != promise) {
                    return Err(self.wrong(verb, "word of another request"));
                }
                if began.elapsed() >= self.patience {
                    let state = value["queue_state"].as_str().unwrap_or("active");
                    let why = format!("it is still at it, and calls its queue `{state}`");
                    return Err(Failure::Stop(self.away(verb, &why)));
                }
                tokio::time::sleep(pauses.next().unwrap_or_default().min(LONGEST_WAIT)).await;
                continue;
            }
            if let Some(error) = value["error"].as_str() {
                return Err(failed(verb, 400, self.clean(error)));
            }
            return T::deserialize(value).map_err(|e| self.wrong(verb, &format!("something else: {e}")));
        }
    }

    /// An answer as what it should be.
    pub(crate) fn read<T: DeserializeOwned>(&self, verb: &str, heard: &Heard) -> Result<T, Failure> {
        if heard.protobuf {
            let Some(value) = protobuf::answer(verb, &heard.body) else {
                return Err(self.wrong(verb, "a message that breaks off, or of another kind"));
            };
            return T::deserialize(value).map_err(|e| self.wrong(verb, &format!("something else: {e}")));
        }
        serde_json::from_slice(&heard.body).map_err(|e| {
            let text = String::from_utf8_lossy(&heard.body);
            // As Python writes them.
            if text.contains("NaN") || text.contains("Infinity") {
                return self.wrong(verb, "a number that is not finite");
            }
            self.wrong(verb, &format!("something else: {e}"))
        })
    }

    /// A model whose numbers have left all bounds.
    pub(crate) fn mad(&self, verb: &str, what: &str) -> Failure {
        let what =
            format!("the server at {} answered `{verb}` with {what} that is not finite", self.config.url);
        Failure::Stop(told(what, "the model may have left all bounds: lower `optimizer.learning_rate`"))
    }

    /// A server that says what the protocol does not allow.
    pub(crate) fn wrong(&self, verb: &str, what: &str) -> Failure {
        let what = format!("the server at {} answered `{verb}` with {what}", self.config.url);
        Failure::Stop(told(what, "it may speak another version of the protocol; see its own log"))
    }

    /// A refusal, where there is no more to say.
    pub(crate) fn refused(&self, verb: &str, status: u16, detail: &str) -> EngineError {
        let what = format!("the server at {} refused `{verb}` ({status})", self.config.url);
        told(format!("{what}{}", dash(detail)), "see the server's own log")
    }

    fn away(&self, verb: &str, why: &str) -> EngineError {
        let (url, most) = (&self.config.url, self.patience.as_secs_f64());
        let what = format!("the server at {url} has not done `{verb}` in {most} s: {why}");
        told(what, "see to the server; `engine.patience_seconds` says how long it is waited for")
    }

    fn locked(&self, status: StatusCode) -> EngineError {
        let url = &self.config.url;
        match &self.config.api_key_env {
            Some(name) => told(
                format!("the server at {url} does not take the key in `{name}` ({})", status.as_u16()),
                "the key may be another server's, or have ended",
            ),
            None => told(
                format!("the server at {url} wants a key ({})", status.as_u16()),
                "name the variable that has it: `engine.api_key_env = \"TINKER_API_KEY\"`",
            ),
        }
    }

    /// The server's own words, if it has any: short, on one line, and without the key.
    fn detail(&self, body: &[u8]) -> String {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let said = ["detail", "error", "message"].iter().find_map(|key| match &value[*key] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
        self.clean(&said.unwrap_or_default())
    }

    fn clean(&self, text: &str) -> String {
        let shown: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect::<String>();
        match &self.key {
            Some(key) => shown.replace(&key.text, "[key]"),
            None => shown,
        }
    }

    fn pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let first = Duration::from_secs_f64(self.config.retry_seconds);
        std::iter::successors(Some(first), |pause| Some((*pause * 2).min(LONGEST_PAUSE)))
    }
}

impl Key {
    fn read(name: &str) -> Result<Self, EngineError> {
        let Ok(text) = std::env::var(name) else {
            let what = format!("`engine.api_key_env` is `{name}`, and there is no such variable");
            return Err(told(what, &format!("set it first: export {name}=…")));
        };
        match HeaderValue::from_str(text.trim()) {
            Ok(mut header) if !text.trim().is_empty() => {
                header.set_sensitive(true);
                Ok(Self { text: text.trim().to_owned(), header })
            }
            _ => Err(told(format!("what `{name}` holds is no key"), "it is one line of plain characters")),
        }
    }
}

/// Looks whether the server is there, lets us in, and has the model. Nothing is made.
pub fn greet(config: &RemoteConfig) -> Result<(), EngineError> {
    #[derive(Deserialize)]
    struct Models {
        supported_models: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        model_name: Option<String>,
    }
    let mut line = Line::open(config, |_| ())?;
    line.patience = line.patience.min(AT_FIRST);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| told(format!("no async runtime: {e}"), "free some memory"))?;
    let foreign = || {
        let what = format!("what is at {} does not speak the Tinker protocol, `/api/v1`", config.url);
        let asked = format!("{}/api/v1/healthz", config.url.trim_end_matches('/'));
        told(what, &format!("`engine.url` is what comes before `/api/v1`; see what answers at {asked}"))
    };
    runtime.block_on(async {
        let plain = |failure| match failure {
            Failure::Stop(error) => error,
            Failure::Lost(_) | Failure::Refused { .. } => foreign(),
        };
        let health = line.ask("healthz", None).await.map_err(plain)?;
        let health: Value = serde_json::from_slice(&health.body).unwrap_or_default();
        if !health["status"].is_string() {
            return Err(foreign());
        }
        let answer = line.ask("get_server_capabilities", None).await.map_err(plain)?;
        let models: Models = line.read("get_server_capabilities", &answer).map_err(plain)?;
        let names: Vec<String> = models.supported_models.into_iter().filter_map(|m| m.model_name).collect();
        if names.contains(&config.base_model) {
            return Ok(());
        }
        let what = format!("the server at {} has no model `{}`", config.url, config.base_model);
        let shown: Vec<String> = names.iter().take(12).map(|n| format!("`{}`", line.clean(n))).collect();
        let more = if names.len() > 12 { " and others" } else { "" };
        let has = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
        Err(told(what, &format!("it has {has}{more}; set `engine.base_model`")))
    })
}

/// What a promise that failed means: what the server says it no longer has is lost, and can be made anew.
fn failed(verb: &str, status: u16, detail: String) -> Failure {
    let said = detail.to_lowercase();
    if said.contains("not loaded") || said.contains("not found") {
        Failure::Lost(detail)
    } else {
        Failure::Refused { verb: verb.to_owned(), status, detail }
    }
}

/// What stops a run, in words.
pub(crate) fn told(what: impl Into<String>, hint: &str) -> EngineError {
    EngineError::Remote { what: what.into(), hint: hint.to_owned() }
}

fn words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it takes too long".to_owned();
    }
    if error.is_connect() {
        return format!("it can't be reached ({})", root(error));
    }
    format!("it hung up ({})", root(error))
}

/// The first cause of an error.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.source().is_none() { error.to_string() } else { cause.to_string() }
}

fn dash(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}
