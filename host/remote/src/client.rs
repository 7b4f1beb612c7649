//! An HTTP client: single requests, requests that are retried after a pause, and error messages.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use allot_allocation::shown;
use allot_engine::EngineError;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client as HttpClient, StatusCode, Url};
use rustls::crypto::{CryptoProvider, ring};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use allot_settings::address::is_loopback;

use crate::address::{Address, Lock};
use crate::protobuf::{CONTENT, Outcome, PassRequest};

/// The longest pause before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two polls for a result that the server is still computing.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a server may be unavailable at the start of a run.
const AT_FIRST: Duration = Duration::from_secs(5);
/// The longest reply that is read, in bytes.
const LONGEST_ANSWER: usize = 1 << 30;

/// Exchanges requests and replies with a server.
pub(crate) struct Client {
    http: HttpClient,
    to: Address,
    key: Option<Key>,
    /// Limits the number of concurrent exchanges, first come, first served.
    turns: Semaphore,
    notice: fn(&str),
    /// Whether the notice of an unavailable server was given: once for all waiting requests.
    away: AtomicBool,
    /// Whether the server refused JSON and needs protobuf.
    newer: AtomicBool,
}

/// An API key. It has no `Debug`, so that it is never shown.
#[derive(Clone)]
struct Key {
    text: String,
    header: HeaderValue,
}

/// Why a request failed.
pub(crate) enum Failure {
    /// The server no longer has the model, session or state that the request names.
    Lost(String),
    /// The server refused the request.
    Refused {
        /// The verb of the request.
        verb: String,
        status: u16,
        /// The server's error text.
        detail: String,
    },
    /// The server was unavailable for longer than the patience.
    Away(EngineError),
    /// The run must stop.
    Stop(EngineError),
}

/// A request's body.
#[derive(Clone, Copy)]
pub(crate) enum RequestBody<'a> {
    Json(&'a str),
    Protobuf(&'a [u8]),
}

/// A server's reply to one request.
pub(crate) struct ServerReply {
    status: StatusCode,
    /// Whether the body is protobuf, not JSON.
    protobuf: bool,
    /// The server's `retry-after`, if given.
    later: Option<Duration>,
    body: Vec<u8>,
}

impl ServerReply {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn later(&self) -> Option<Duration> {
        self.later
    }

    /// The body, unparsed.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Client {
    /// Returns a client. Sends nothing yet. `notice` is called when the server is unavailable or back.
    pub(crate) fn open(to: Address, notice: fn(&str)) -> Result<Self, EngineError> {
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread was faster.
            let _ = ring::default_provider().install_default();
        }
        let key = to.api_key_env.as_deref().map(|name| Key::read(name, &to)).transpose()?;
        let builder = HttpClient::builder()
            .user_agent(concat!("allot/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(to.request.min(Duration::from_secs(10)))
            .timeout(to.request)
            .pool_max_idle_per_host(to.connections as usize)
            // The key is for this server only, so redirects are not followed.
            .redirect(reqwest::redirect::Policy::none());
        let near = Url::parse(&to.url).is_ok_and(|url| is_loopback(&url));
        // A proxy would resolve a loopback address to itself.
        let builder = if near { builder.no_proxy() } else { builder };
        let http = builder.build().map_err(|error| {
            let what = format!("could not set up a connection to {}: {}", to.url, root(&error));
            told(what, "install the system's certificates, on Debian `ca-certificates`")
        })?;
        let turns = Semaphore::new((to.connections as usize).min(Semaphore::MAX_PERMITS));
        let (away, newer) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { http, to, key, turns, notice, away, newer })
    }

    /// Returns a client for the check before a run starts, with a short patience and without notices.
    pub(crate) fn first(mut to: Address) -> Result<Self, EngineError> {
        to.patience = to.patience.min(AT_FIRST);
        Self::open(to, |_| ())
    }

    /// Returns another client for the same server, with connections of its own.
    pub(crate) fn again(&self) -> Result<Self, EngineError> {
        Self::open(self.to.clone(), |_| ())
    }

    pub(crate) fn to(&self) -> &Address {
        &self.to
    }

    pub(crate) fn notice(&self, words: &str) {
        (self.notice)(words);
    }

    /// Waits for a permit for one more exchange.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Notifies once that the server is unavailable.
    pub(crate) fn gone(&self, verb: &str, why: &str) {
        if !self.away.swap(true, Relaxed) {
            let (url, most) = (&self.to.url, self.to.patience.as_secs_f64());
            let what = format!("the server at {url} failed to do `{verb}`: {why}");
            self.notice(&format!("{what}; retrying for up to {most} s"));
        }
    }

    /// Notifies that the server is back, if it was unavailable.
    pub(crate) fn back(&self) {
        if self.away.swap(false, Relaxed) {
            self.notice(&format!("the server at {} is back", self.to.url));
        }
    }

    /// Makes one exchange: a POST of the body, or a GET without one.
    pub(crate) async fn once(
        &self,
        verb: &str,
        said: Option<RequestBody<'_>>,
    ) -> Result<ServerReply, reqwest::Error> {
        let url = self.url(verb);
        let mut request = match said {
            Some(RequestBody::Json(body)) => {
                self.http.post(url).header(CONTENT_TYPE, "application/json").body(body.to_owned())
            }
            Some(RequestBody::Protobuf(body)) => {
                self.http.post(url).header(CONTENT_TYPE, CONTENT).body(body.to_vec())
            }
            None => self.http.get(url),
        };
        if let Some(key) = &self.key {
            request = request.header(self.to.lock.header().0, key.header.clone());
        }
        let mut response = request.send().await?;
        let (status, mut body) = (response.status(), Vec::new());
        let content = response.headers().get(CONTENT_TYPE);
        let protobuf = content.is_some_and(|c| c.as_bytes().starts_with(CONTENT.as_bytes()));
        let later =
            response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let later = later.map(Duration::from_secs);
        while let Some(part) = response.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST_ANSWER {
                break;
            }
        }
        Ok(ServerReply { status, protobuf, later, body })
    }

    /// Removes something that is not needed any more. Ignores failures, which only cost disk space.
    pub(crate) async fn remove(&self, path: &str) {
        let mut request = self.http.delete(self.url(path));
        if let Some(key) = &self.key {
            request = request.header(self.to.lock.header().0, key.header.clone());
        }
        let _ = request.send().await;
    }

    fn url(&self, verb: &str) -> String {
        format!("{}{}{verb}", self.to.url.trim_end_matches('/'), self.to.path)
    }

    /// Sends a request, with retries after pauses, until the server replies or the patience is exhausted.
    pub(crate) async fn ask(&self, verb: &str, body: Option<&str>) -> Result<ServerReply, Failure> {
        self.say(verb, body.map(RequestBody::Json), true).await
    }

    /// Requests `forward` or `forward_backward`: as JSON, unless the server takes only protobuf, in which
    /// both are one request.
    pub(crate) async fn pass(&self, request: PassRequest) -> Result<ServerReply, Failure> {
        if !self.newer.load(Relaxed) {
            match self.ask(request.verb(), Some(&request.json())).await {
                Err(Failure::Refused { status: 415, .. }) => {}
                Err(Failure::Lost(detail)) if request.forward_only && is_unrouted(&detail) => {}
                other => return other,
            }
            self.newer.store(true, Relaxed);
        }
        self.say("forward_backward", Some(RequestBody::Protobuf(&request.message())), true).await
    }

    /// Does the same as [`ask`](Self::ask) for a request that must not be repeated after a failure, because
    /// it may be half done.
    pub(crate) async fn ask_whole(&self, verb: &str, body: &str) -> Result<ServerReply, Failure> {
        self.say(verb, Some(RequestBody::Json(body)), false).await
    }

    async fn say(
        &self,
        verb: &str,
        said: Option<RequestBody<'_>>,
        again: bool,
    ) -> Result<ServerReply, Failure> {
        let (mut began, mut pauses) = (None, self.pauses());
        loop {
            let turn = self.turn().await;
            // The time spent waiting for a permit does not count against the server's patience.
            let began = *began.get_or_insert_with(Instant::now);
            let heard = self.once(verb, said).await;
            drop(turn);
            let why = match heard {
                Ok(heard) if heard.body.len() > LONGEST_ANSWER => {
                    return Err(self.wrong(verb, "more than a gigabyte"));
                }
                Ok(heard) if heard.status.is_success() => {
                    self.back();
                    return Ok(heard);
                }
                Ok(heard) => {
                    let detail = self.detail(&heard.body);
                    match heard.status.as_u16() {
                        // With a bearer token, 403 is not about the key.
                        403 if matches!(self.to.lock, Lock::Bearer(_)) => {
                            return Err(Failure::Refused { verb: verb.to_owned(), status: 403, detail });
                        }
                        401 | 403 => return Err(Failure::Stop(self.locked(heard.status))),
                        404 | 410 => return Err(Failure::Lost(detail)),
                        // The server is still working, which is not a failure.
                        408 if verb == "retrieve_future" => String::new(),
                        408 | 425 | 429 | 500..
                            if again || heard.status != StatusCode::INTERNAL_SERVER_ERROR =>
                        {
                            format!("it answers {}{}", heard.status, dash(&detail))
                        }
                        status => {
                            return Err(Failure::Refused { verb: verb.to_owned(), status, detail });
                        }
                    }
                }
                Err(error) if error.is_timeout() && verb == "retrieve_future" => String::new(),
                Err(error) => words(&error),
            };
            if began.elapsed() >= self.to.patience {
                let why = if why.is_empty() { "it has not finished the request".to_owned() } else { why };
                return Err(Failure::Away(self.away(verb, &why)));
            }
            if !why.is_empty() {
                self.gone(verb, &why);
            }
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Waits for the outcome of a request that the server has promised to process.
    pub(crate) async fn fetch<T: Outcome>(&self, verb: &str, promise: &str) -> Result<T, Failure> {
        let (began, mut pauses) = (Instant::now(), self.pauses());
        let body = json!({ "request_id": promise }).to_string();
        loop {
            let answer = match self.ask("retrieve_future", Some(&body)).await {
                Ok(answer) => answer,
                // The promised request failed.
                Err(Failure::Refused { status, detail, .. }) => return Err(failed(verb, status, detail)),
                Err(failure) => return Err(failure),
            };
            if answer.protobuf {
                return T::decode(&answer.body).ok_or_else(|| self.broken(verb));
            }
            let value: Value = self.read(verb, &answer)?;
            if value["type"] == "try_again" {
                if value["request_id"].as_str().is_some_and(|id| id != promise) {
                    return Err(self.wrong(verb, "a reply to another request"));
                }
                if began.elapsed() >= self.to.patience {
                    let state = value["queue_state"].as_str().unwrap_or("active");
                    let why = format!("it is still working on it, with its queue `{state}`");
                    return Err(Failure::Away(self.away(verb, &why)));
                }
                tokio::time::sleep(pauses.next().unwrap_or_default().min(LONGEST_WAIT)).await;
                continue;
            }
            if let Some(error) = value["error"].as_str() {
                return Err(failed(verb, 400, self.clean(error)));
            }
            return T::deserialize(value).map_err(|e| self.wrong(verb, &format!("unexpected data: {e}")));
        }
    }

    /// Parses an answer in JSON.
    pub(crate) fn read<T: DeserializeOwned>(&self, verb: &str, heard: &ServerReply) -> Result<T, Failure> {
        if heard.protobuf {
            return Err(self.broken(verb));
        }
        serde_json::from_slice(&heard.body).map_err(|e| {
            let text = String::from_utf8_lossy(&heard.body);
            // Python's spelling.
            if text.contains("NaN") || text.contains("Infinity") {
                return self.wrong(verb, "a number that is not finite");
            }
            self.wrong(verb, &format!("unexpected data: {e}"))
        })
    }

    /// Returns the failure for a message that can't be decoded as the expected outcome.
    fn broken(&self, verb: &str) -> Failure {
        self.wrong(verb, "a message that is cut off or of another kind")
    }

    /// Returns the failure for numbers that are not finite.
    pub(crate) fn mad(&self, verb: &str, what: &str) -> Failure {
        let what = format!("the server at {} answered `{verb}` with {what} that is not finite", self.to.url);
        Failure::Stop(told(what, "lower `optimizer.learning_rate`: the model may have diverged"))
    }

    /// Returns the failure for a reply that violates the protocol.
    pub(crate) fn wrong(&self, verb: &str, what: &str) -> Failure {
        let what = format!("the server at {} answered `{verb}` with {what}", self.to.url);
        Failure::Stop(told(what, "check its log: it may speak a different version of the protocol"))
    }

    /// Returns the error for a refusal without a more specific hint.
    pub(crate) fn refused(&self, verb: &str, status: u16, detail: &str) -> EngineError {
        let what = format!("the server at {} refused `{verb}` ({status})", self.to.url);
        told(format!("{what}{}", dash(detail)), "check the server's log")
    }

    pub(crate) fn away(&self, verb: &str, why: &str) -> EngineError {
        let (url, most) = (&self.to.url, self.to.patience.as_secs_f64());
        let what = format!("the server at {url} did not complete `{verb}` in {most} s: {why}");
        let hint = format!("set `{}.patience_seconds` to wait longer", self.to.section);
        told(what, &format!("check the server, or {hint}"))
    }

    pub(crate) fn locked(&self, status: StatusCode) -> EngineError {
        let url = &self.to.url;
        match &self.to.api_key_env {
            Some(name) => told(
                format!("the server at {url} rejected the key in `{name}` ({})", status.as_u16()),
                "check the key: it may be for another server, or have expired",
            ),
            None => told(
                format!("the server at {url} needs a key ({})", status.as_u16()),
                &format!(
                    "name the variable that has it: `{}.api_key_env = \"{}\"`",
                    self.to.section,
                    self.to.lock.example()
                ),
            ),
        }
    }

    /// Returns the server's error text, if it has any: short, on one line, and without the key.
    pub(crate) fn detail(&self, body: &[u8]) -> String {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let said = ["detail", "error", "message"].iter().find_map(|key| match &value[*key] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other["message"].as_str().map_or_else(|| other.to_string(), str::to_owned)),
        });
        self.clean(&said.unwrap_or_default())
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        let shown: String =
            text.chars().map(|c| if shown::steers(c) { ' ' } else { c }).take(300).collect::<String>();
        match &self.key {
            Some(key) => shown.replace(&key.text, "[key]"),
            None => shown,
        }
    }

    pub(crate) fn pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        std::iter::successors(Some(self.to.retry), |pause| Some((*pause * 2).min(LONGEST_PAUSE)))
    }
}

impl Key {
    fn read(name: &str, to: &Address) -> Result<Self, EngineError> {
        let Ok(text) = std::env::var(name) else {
            let what = format!("`{}.api_key_env` is `{name}`, but this variable is not set", to.section);
            return Err(told(what, &format!("set it first: export {name}=…")));
        };
        match HeaderValue::from_str(&format!("{}{}", to.lock.header().1, text.trim())) {
            Ok(mut header) if !text.trim().is_empty() => {
                header.set_sensitive(true);
                Ok(Self { text: text.trim().to_owned(), header })
            }
            _ => Err(told(format!("the value of `{name}` is not a key"), "use one line of plain text")),
        }
    }
}

/// Returns whether a 404 with this detail means that the path has no route, rather than no such model.
/// FastAPI 0.136.3 answers with this text, from Starlette 1.3.1's `HTTPException`. The 404s of SkyRL's own
/// routes name the missing thing (`skyrl/tinker/api.py` of 2026-08-21: "Model not found").
fn is_unrouted(detail: &str) -> bool {
    detail == "Not Found"
}

/// Returns the failure of a promise. A model that the server dropped is lost, and can be recreated. SkyRL
/// then says "not loaded" or "not found" (`skyrl/tinker/engine.py` and `api.py` of 2026-08-21).
fn failed(verb: &str, status: u16, detail: String) -> Failure {
    let said = detail.to_lowercase();
    if said.contains("not loaded") || said.contains("not found") {
        Failure::Lost(detail)
    } else {
        Failure::Refused { verb: verb.to_owned(), status, detail }
    }
}

/// Returns an error that stops a run.
pub(crate) fn told(what: impl Into<String>, hint: &str) -> EngineError {
    EngineError::Remote { what: what.into(), hint: hint.to_owned() }
}

pub(crate) fn words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    if error.is_connect() {
        return format!("it can't be reached ({})", root(error));
    }
    format!("it hung up ({})", root(error))
}

/// Returns the first cause of an error, as text.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.source().is_none() { error.to_string() } else { cause.to_string() }
}

pub(crate) fn dash(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_route_is_not_a_lost_model() {
        assert!(is_unrouted("Not Found"));
        for detail in ["Model not found", "Session not found", "Model 'm' not found", "not found", ""] {
            assert!(!is_unrouted(detail), "{detail}");
        }
        let lost = ["Model m not loaded (likely stale request from previous server)", "Future not found"];
        assert!(lost.iter().all(|detail| matches!(failed("", 400, (*detail).to_owned()), Failure::Lost(_))));
        assert!(matches!(failed("", 400, "out of memory".to_owned()), Failure::Refused { .. }));
    }
}
