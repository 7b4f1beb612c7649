//! An HTTP client: single requests, requests that are retried after a pause, and the sentences that describe failures.

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

/// The longest pause before something is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause while a server is at it: what is done should not wait to be fetched.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a server may be away when a run is about to start.
const AT_FIRST: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 1 << 30;

/// Exchanges with a server, one request and its answer at a time.
pub(crate) struct Client {
    http: HttpClient,
    to: Address,
    key: Option<Key>,
    /// As many as there may be exchanges at a time. Who comes first is served first.
    turns: Semaphore,
    notice: fn(&str),
    /// Whether it was said that the server is away: once, however many requests wait for it.
    away: AtomicBool,
    /// Whether the server has refused JSON where newer ones want protobuf.
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
        /// What it was asked.
        verb: String,
        status: u16,
        /// Its own words.
        detail: String,
    },
    /// The server has been away for as long as it is waited for.
    Away(EngineError),
    /// The run stops.
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
    /// Whether it is protobuf, and not JSON.
    protobuf: bool,
    /// After how long it wants to be asked again, where it says so.
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
    /// A client for a server. Nothing is sent yet. `notice` is called when the server is away, and when it is back.
    pub(crate) fn open(to: Address, notice: fn(&str)) -> Result<Self, EngineError> {
        if CryptoProvider::get_default().is_none() {
            // Fails only where someone else was faster.
            let _ = ring::default_provider().install_default();
        }
        let key = to.api_key_env.as_deref().map(|name| Key::read(name, &to)).transpose()?;
        let builder = HttpClient::builder()
            .user_agent(concat!("allot/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(to.request.min(Duration::from_secs(10)))
            .timeout(to.request)
            .pool_max_idle_per_host(to.connections as usize)
            // A key is for one server, wherever that one points.
            .redirect(reqwest::redirect::Policy::none());
        let near = Url::parse(&to.url).is_ok_and(|url| is_loopback(&url));
        // A proxy would look for this machine's own server on its own.
        let builder = if near { builder.no_proxy() } else { builder };
        let http = builder.build().map_err(|error| {
            let what = format!("could not set up a connection to {}: {}", to.url, root(&error));
            told(what, "install the system's certificates, on Debian `ca-certificates`")
        })?;
        let turns = Semaphore::new((to.connections as usize).min(Semaphore::MAX_PERMITS));
        let (away, newer) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { http, to, key, turns, notice, away, newer })
    }

    /// A client for the check before a run starts: its patience is short, and it shows no notices.
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

    /// Waits until one more exchange is allowed, and holds it.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Says that the server is away, unless that was said.
    pub(crate) fn gone(&self, verb: &str, why: &str) {
        if !self.away.swap(true, Relaxed) {
            let (url, most) = (&self.to.url, self.to.patience.as_secs_f64());
            let what = format!("the server at {url} failed to do `{verb}`: {why}");
            self.notice(&format!("{what}; retrying for up to {most} s"));
        }
    }

    /// Says that it is back, if it was away.
    pub(crate) fn back(&self) {
        if self.away.swap(false, Relaxed) {
            self.notice(&format!("the server at {} is back", self.to.url));
        }
    }

    /// One exchange. Where nothing is said it is a GET.
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

    /// Removes something that is not needed any more. A failure is ignored: it only costs disk space.
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

    /// Sends a request, and again after pauses, until the server answers it or patience runs out.
    pub(crate) async fn ask(&self, verb: &str, body: Option<&str>) -> Result<ServerReply, Failure> {
        self.say(verb, body.map(RequestBody::Json), true).await
    }

    /// Asks for `forward` or `forward_backward`: in JSON, until the server is found to take protobuf only, in which both
    /// are one request.
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

    /// The same as [`ask`](Self::ask), of something that is not asked for again where it broke, for it may be half
    /// done then.
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
            // Waiting for a turn is no fault of the server's.
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
                        // Where a key is a bearer's, 403 is about something else.
                        403 if matches!(self.to.lock, Lock::Bearer(_)) => {
                            return Err(Failure::Refused { verb: verb.to_owned(), status: 403, detail });
                        }
                        401 | 403 => return Err(Failure::Stop(self.locked(heard.status))),
                        404 | 410 => return Err(Failure::Lost(detail)),
                        // Still at it: that is no trouble yet.
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

    /// Waits for the outcome of a request that the server promised to do.
    pub(crate) async fn fetch<T: Outcome>(&self, verb: &str, promise: &str) -> Result<T, Failure> {
        let (began, mut pauses) = (Instant::now(), self.pauses());
        let body = json!({ "request_id": promise }).to_string();
        loop {
            let answer = match self.ask("retrieve_future", Some(&body)).await {
                Ok(answer) => answer,
                // What was promised has failed.
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
            // As Python writes them.
            if text.contains("NaN") || text.contains("Infinity") {
                return self.wrong(verb, "a number that is not finite");
            }
            self.wrong(verb, &format!("unexpected data: {e}"))
        })
    }

    /// A message that cannot be read as what was asked for.
    fn broken(&self, verb: &str) -> Failure {
        self.wrong(verb, "a message that is cut off or of another kind")
    }

    /// A model whose numbers have left all bounds.
    pub(crate) fn mad(&self, verb: &str, what: &str) -> Failure {
        let what = format!("the server at {} answered `{verb}` with {what} that is not finite", self.to.url);
        Failure::Stop(told(what, "lower `optimizer.learning_rate`: the model may have diverged"))
    }

    /// A server that says what the protocol does not allow.
    pub(crate) fn wrong(&self, verb: &str, what: &str) -> Failure {
        let what = format!("the server at {} answered `{verb}` with {what}", self.to.url);
        Failure::Stop(told(what, "check its log: it may speak a different version of the protocol"))
    }

    /// A refusal, where there is no more to say.
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

    /// The server's own words, if it has any: short, on one line, and without the key.
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

/// Whether a server that answers 404 with this detail has no route for the path at all, rather than no such model. So
/// answers FastAPI 0.136.3, which has it from Starlette 1.3.1's `HTTPException`; the 404s of SkyRL's own routes name
/// what is missing (`skyrl/tinker/api.py` of 2026-08-21: "Model not found").
fn is_unrouted(detail: &str) -> bool {
    detail == "Not Found"
}

/// What the failure of a promise means. A model that the server no longer has is lost, and can be made again: SkyRL then
/// says "not loaded" or "not found" (`skyrl/tinker/engine.py` and `api.py` of 2026-08-21).
fn failed(verb: &str, status: u16, detail: String) -> Failure {
    let said = detail.to_lowercase();
    if said.contains("not loaded") || said.contains("not found") {
        Failure::Lost(detail)
    } else {
        Failure::Refused { verb: verb.to_owned(), status, detail }
    }
}

/// An error that stops a run.
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

/// The first cause of an error.
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
