//! The endpoint that environments call for each turn of their model: vLLM's `POST /inference/v1/generate`, token ids in and
//! token ids out, on the loopback interface, for holders of the run's key.
//!
//! A request names its episode in `sampling_params.session`. It must extend all tokens of the episode so far. How tokens are
//! drawn is the run's affair: a request that sets it, too, ends its episode.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use allot_base::{Error, Result};
use allot_remote::runtime;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::sessions::{Refusal, Sessions, Turn};

/// The longest body that is read, in bytes.
const LONGEST: usize = 64 << 20;
/// What clients take for the end of the context, which ends an episode by a limit.
const OVER: &str = "the episode has reached a limit of the run (maximum context length)";
/// What a renderer adds to each request, beside the session.
const RENDERED: [&str; 4] =
    ["stop_token_ids", "logprobs", "skip_special_tokens", "routed_experts_prompt_start"];

/// An endpoint that serves until it is dropped.
pub(crate) struct Endpoint {
    /// Its address, as clients take it.
    pub url: String,
    /// The key that requests must have.
    pub key: String,
    serving: JoinHandle<()>,
}

/// What requests need.
struct Door {
    key: String,
    sessions: Arc<Sessions>,
    note: fn(&str),
}

/// A request for a turn.
#[derive(Deserialize)]
struct Asked {
    token_ids: Vec<u32>,
    sampling_params: Map<String, Value>,
}

impl Endpoint {
    /// Opens an endpoint for these sessions, at a port that the system chooses. `note` is told of requests that are refused.
    ///
    /// # Errors
    ///
    /// No port is free, or no random numbers are there for the key.
    pub fn open(sessions: Arc<Sessions>, note: fn(&str)) -> Result<Self> {
        let key = secret()?;
        let door = Arc::new(Door { key: key.clone(), sessions, note });
        let closed = |e: std::io::Error| {
            Error::new(format!("could not open a port on the loopback interface for environments: {e}"))
        };
        let bound = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = bound.map_err(closed)?;
        let serving = runtime()?.spawn(serve(listener, door));
        Ok(Self { url: format!("http://{address}/v1"), key, serving })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns 128 random bits as text.
///
/// # Errors
///
/// The system has no random numbers.
pub(crate) fn secret() -> Result<String> {
    let random = getrandom::u64().and_then(|one| Ok((one, getrandom::u64()?)));
    let (one, two) = random.map_err(|e| Error::new(format!("the system gives no random numbers: {e}")))?;
    Ok(format!("{one:016x}{two:016x}"))
}

async fn serve(listener: std::net::TcpListener, door: Arc<Door>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(e) => return (door.note)(&format!("the endpoint of environments can't be served: {e}")),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open, for example.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let door = Arc::clone(&door);
                async move { Ok::<_, Infallible>(door.answer(request).await) }
            });
            // A client that goes away is no failure of ours.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match self.answered(request).await {
            Ok(said) => response(StatusCode::OK, &said),
            Err((status, why)) => {
                if why != OVER {
                    (self.note)(&format!("a request of an environment is refused: {why}"));
                }
                response(status, &json!({ "error": { "message": why, "code": status.as_u16() } }))
            }
        }
    }

    async fn answered(&self, request: Request<Incoming>) -> std::result::Result<Value, (StatusCode, String)> {
        let refused = |status, why: &str| Err((status, why.to_owned()));
        let given = request.headers().get(AUTHORIZATION).and_then(|given| given.to_str().ok());
        let given = given.and_then(|given| given.strip_prefix("Bearer ")).unwrap_or_default();
        if !same(given, &self.key) {
            return refused(StatusCode::UNAUTHORIZED, "it does not have the run's key");
        }
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/v1/models" | "/models") => return Ok(json!({ "object": "list", "data": [] })),
            (&Method::POST, "/inference/v1/generate") => {}
            (method, path) => {
                let why = format!(
                    "there is no {method} {path}; turns are asked for by POST /inference/v1/generate"
                );
                return Err((StatusCode::NOT_FOUND, why));
            }
        }
        let Ok(body) = Limited::new(request.into_body(), LONGEST).collect().await else {
            return refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("its body is longer than {LONGEST} bytes"),
            );
        };
        let asked: Asked = serde_json::from_slice(&body.to_bytes())
            .map_err(|e| (StatusCode::BAD_REQUEST, format!("its body is no request for a turn: {e}")))?;
        let session = asked.sampling_params.get("session").and_then(Value::as_str).unwrap_or_default();
        let set =
            asked.sampling_params.keys().find(|key| *key != "session" && !RENDERED.contains(&key.as_str()));
        let turn = match set {
            None => self.sessions.asked(session, asked.token_ids),
            Some(key) => Err(self.sessions.refuse(
                session,
                format!("its harness sets `{key}`; how tokens are drawn is set by the run's [sampling]"),
            )),
        };
        let turn = match turn {
            Ok(turn) => turn.await.unwrap_or(Err(Refusal::Gone)),
            Err(refusal) => Err(refusal),
        };
        turn.map(|turn| answer(&turn)).map_err(|refusal| match refusal {
            Refusal::Over => (StatusCode::BAD_REQUEST, OVER.to_owned()),
            Refusal::Gone => (StatusCode::NOT_FOUND, "it belongs to no episode that is open".to_owned()),
            Refusal::Twice => (StatusCode::CONFLICT, "its episode has a turn under way already".to_owned()),
            Refusal::Bad(why) => (StatusCode::BAD_REQUEST, why),
        })
    }
}

/// Returns the reply that vLLM gives for these tokens.
fn answer(turn: &Turn) -> Value {
    let of = |(token, log_prob): (&u32, &f32)| json!({ "token": format!("token_id:{token}"), "logprob": log_prob });
    let content: Vec<Value> = turn.tokens.iter().zip(&turn.log_probs).map(of).collect();
    json!({
        "request_id": "",
        "choices": [{
            "index": 0,
            "token_ids": turn.tokens,
            "logprobs": { "content": content },
            "finish_reason": if turn.is_last { "length" } else { "stop" },
        }],
    })
}

fn response(status: StatusCode, said: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(said.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// Compares keys in a time that does not tell where they differ.
fn same(given: &str, key: &str) -> bool {
    let differ = given.bytes().zip(key.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == key.len() && differ == 0
}
