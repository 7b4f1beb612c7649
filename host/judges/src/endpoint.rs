//! The endpoint that environments call for each turn of their model: vLLM's `POST /inference/v1/generate`, token ids in and
//! token ids out, on the loopback interface, for holders of the run's key.
//!
//! A request names its episode in `sampling_params.session`. It must extend all tokens of one of the episode's training rows so
//! far, or begin the next one. How tokens are drawn is the run's affair: a request that sets it, too, ends its episode.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
/// The most refusals that are told.
const NOTES: u32 = 20;
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
    /// Number of refusals that were told.
    told: AtomicU32,
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
        let door = Arc::new(Door { key: key.clone(), sessions, note, told: AtomicU32::new(0) });
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
                // A flood of requests is none of notes.
                if why != OVER && self.told.fetch_add(1, Ordering::Relaxed) < NOTES {
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender};
    use std::time::Duration;

    use allot_engine::episode::{Ended, Reply, Stopped};
    use allot_engine::talk::{Event, Talk};
    use allot_engine::{Replies, Said};

    use super::*;

    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Played {
        endpoint: Endpoint,
        sessions: Arc<Sessions>,
        channel: (Sender<Event>, Receiver<Event>),
    }

    impl Played {
        fn new() -> Self {
            Self::with_rows(1)
        }

        fn with_rows(rows: usize) -> Self {
            let sessions = Arc::new(Sessions::new(40, rows, 1000));
            let note = |words: &str| TOLD.lock().expect("no panic").push(words.to_owned());
            let endpoint = Endpoint::open(Arc::clone(&sessions), note).expect("a port");
            Self { endpoint, sessions, channel: Talk::channel() }
        }

        fn open(&self, name: &str, number: usize) {
            self.sessions.open(name.to_owned(), vec![1, 2], Replies::of(&self.channel.0, number, 0));
        }

        /// The next reply, with its episode and index.
        fn reply(&self) -> (usize, u32, Reply) {
            match self.channel.1.recv_timeout(Duration::from_secs(20)) {
                Ok(Event::Reply(number, index, reply)) => (number, index, reply),
                other => panic!("{other:?}"),
            }
        }

        /// Sends a request from a thread of its own, which returns status and body.
        fn ask(&self, head: &str, key: &str, body: &str) -> std::thread::JoinHandle<(u16, String)> {
            let at = self.endpoint.url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
            let length = body.len();
            let request = format!(
                "{head} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n{body}"
            );
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(at).expect("it listens");
                // One that is refused early is not read to its end.
                let _ = stream.write_all(request.as_bytes());
                let mut said = String::new();
                let _ = stream.read_to_string(&mut said);
                let status = said.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&said);
                (status, said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
            })
        }

        fn turn(&self, name: &str, tokens: &[u32], more: &Value) -> std::thread::JoinHandle<(u16, String)> {
            let mut sampling = json!({ "session": name, "stop_token_ids": [3], "logprobs": 1 });
            sampling
                .as_object_mut()
                .expect("it is one")
                .extend(more.as_object().cloned().unwrap_or_default());
            let body = json!({ "model": "policy", "token_ids": tokens, "sampling_params": sampling });
            self.ask("POST /inference/v1/generate", &self.endpoint.key, &body.to_string())
        }

        fn said(&self, name: &str, number: usize, index: u32, tokens: &[u32], stop: Option<Stopped>) {
            let log_probs = vec![-0.5; tokens.len()];
            let said = Said { tokens, log_probs: &log_probs };
            self.sessions.said(name, said, stop, &Replies::of(&self.channel.0, number, index));
        }
    }

    fn refused(asked: std::thread::JoinHandle<(u16, String)>) -> (u16, String) {
        let (status, said) = asked.join().expect("it answers");
        let said: Value = serde_json::from_str(&said).expect(&said);
        (status, said["error"]["message"].as_str().expect("a reason").to_owned())
    }

    #[test]
    fn a_request_that_rewrites_what_was_said_begins_a_row_and_earlier_ones_go_on() {
        let played = Played::with_rows(2);
        played.open("a", 0);
        let index = std::cell::Cell::new(0);
        let turn = |tokens: &[u32], said: &[u32]| {
            let asked = played.turn("a", tokens, &json!({}));
            let reply = played.reply();
            index.set(index.get() + 1);
            played.said("a", 0, index.get(), said, None);
            assert_eq!(asked.join().expect("it answers").0, 200);
            reply.2
        };
        assert_eq!(turn(&[1, 2], &[4]), Reply::Says(Vec::new()));
        assert_eq!(turn(&[1, 2, 4, 5], &[6]), Reply::Says(vec![5]));
        // Another history: all of it is read anew.
        assert_eq!(turn(&[9, 4], &[7]), Reply::Elsewhere(1, vec![9, 4]));
        assert_eq!(turn(&[9, 4, 7, 8], &[8]), Reply::Says(vec![8]));
        // The first row goes on after the last of its turns, and there is no third.
        assert_eq!(turn(&[1, 2, 4, 5, 6, 9], &[5]), Reply::Elsewhere(0, vec![9]));
        let refused = refused(played.turn("a", &[1, 2, 4, 5, 6], &json!({})));
        assert_eq!(
            (refused.0, refused.1.contains("`environment.max_rows` is 2")),
            (400, true),
            "{}",
            refused.1
        );
        assert!(matches!(played.reply(), (0, _, Reply::Ends(Ended { reward: None, .. }))));

        // The first request is the prompt, or none that may be made.
        let other = Played::with_rows(2);
        other.open("b", 0);
        let refused = refused_once(&other);
        assert_eq!((refused.0, refused.1.contains("rewrite")), (400, true), "{}", refused.1);
    }

    fn refused_once(played: &Played) -> (u16, String) {
        refused(played.turn("b", &[3], &json!({})))
    }

    #[test]
    fn an_episode_is_asked_for_turn_by_turn() {
        let played = Played::new();
        played.open("a", 0);
        let first = played.turn("a", &[1, 2, 7], &json!({}));
        assert_eq!(played.reply(), (0, 0, Reply::Says(vec![7])));
        played.said("a", 0, 1, &[8, 3], None);
        let said: Value = serde_json::from_str(&first.join().expect("it answers").1).expect("JSON");
        let choice = &said["choices"][0];
        assert_eq!((&choice["token_ids"], &choice["finish_reason"]), (&json!([8, 3]), &json!("stop")));
        let content =
            json!([{ "token": "token_id:8", "logprob": -0.5 }, { "token": "token_id:3", "logprob": -0.5 }]);
        assert_eq!(choice["logprobs"]["content"], content);

        // The last one that a limit allows; what is asked after it is refused, without harm to the reward.
        let second = played.turn("a", &[1, 2, 7, 8, 3, 9, 9], &json!({}));
        assert_eq!(played.reply(), (0, 1, Reply::Says(vec![9, 9])));
        played.said("a", 0, 2, &[5], Some(Stopped::MaxTokens));
        assert!(second.join().expect("it answers").1.contains(r#""finish_reason":"length""#));
        let over = refused(played.turn("a", &[1, 2, 7, 8, 3, 9, 9, 5], &json!({})));
        assert_eq!(over, (400, OVER.to_owned()));
        played.sessions.ended("a", Ended::rewarded(1.0, None));
        assert_eq!(played.reply(), (0, 2, Reply::Ends(Ended::rewarded(1.0, None))));
        let gone = refused(played.turn("a", &[1, 2], &json!({})));
        assert_eq!(gone, (404, "it belongs to no episode that is open".to_owned()));

        // A limit that is found only after the request.
        played.open("b", 1);
        let first = played.turn("b", &[1, 2], &json!({}));
        assert_eq!(played.reply(), (1, 0, Reply::Says(Vec::new())));
        played.said("b", 1, 1, &[], Some(Stopped::MaxReadTokens));
        assert_eq!(refused(first), (400, OVER.to_owned()));
        assert!(!TOLD.lock().expect("no panic").iter().any(|note| note.contains(OVER)));
    }

    #[test]
    fn requests_without_the_key_are_refused_and_none_touches_another_episode() {
        let played = Played::new();
        played.open("a", 0);
        let good = json!({ "token_ids": [1, 2], "sampling_params": { "session": "a" } }).to_string();
        let post = "POST /inference/v1/generate";
        for key in ["", "EMPTY", &played.endpoint.key[1..], &format!("{}0", played.endpoint.key)] {
            let told = refused(played.ask(post, key, &good));
            assert_eq!(told, (401, "it does not have the run's key".to_owned()), "{key}");
        }
        let key = played.endpoint.key.clone();
        assert_eq!(played.ask("GET /v1/models", &key, "").join().expect("it answers").0, 200);
        assert_eq!(refused(played.ask("POST /v1/chat/completions", &key, &good)).0, 404);
        assert_eq!(refused(played.ask(post, &key, "{")).0, 400);
        assert_eq!(refused(played.ask(post, &key, r#"{"token_ids":[-1],"sampling_params":{}}"#)).0, 400);
        assert_eq!(refused(played.ask(post, &key, r#"{"token_ids":[1],"sampling_params":{}}"#)).0, 404);
        assert_eq!(refused(played.turn("b", &[1, 2], &json!({}))).0, 404);

        // None of that has reached the episode. One request at a time does.
        let first = played.turn("a", &[1, 2], &json!({}));
        assert_eq!(played.reply(), (0, 0, Reply::Says(Vec::new())));
        let again = refused(played.turn("a", &[1, 2], &json!({})));
        assert_eq!(again, (409, "its episode has a turn under way already".to_owned()));
        played.said("a", 0, 1, &[4], None);
        assert_eq!(first.join().expect("it answers").0, 200);
        // A replayed request is one that rewrites what was said since.
        let replayed = refused(played.turn("a", &[1, 2], &json!({})));
        assert_eq!(replayed.0, 400);
        let Reply::Ends(end) = played.reply().2 else { panic!("it goes on") };
        let why = "a request of the environment is refused: its 2 tokens rewrite what was said: only the first 2 of 3 are \
                   as they were (`environment.max_rows` is 1)";
        assert_eq!((end.reward, end.trouble.as_deref()), (None, Some(why)));

        played.open("c", 2);
        let (status, why) = refused(played.turn("c", &[1, 2], &json!({ "temperature": 0.1 })));
        assert_eq!((status, why.contains("its harness sets `temperature`")), (400, true));
        assert!(matches!(played.reply(), (2, 0, Reply::Ends(Ended { reward: None, .. }))));
        let notes = TOLD.lock().expect("no panic").join("\n");
        assert!(
            notes.contains("a request of an environment is refused: it does not have the run's key"),
            "{notes}"
        );
    }

    #[test]
    fn an_end_that_comes_while_a_turn_is_sampled_waits_for_it() {
        let played = Played::new();
        played.open("a", 0);
        let _lost = played.turn("a", &[1, 2, 7], &json!({}));
        assert_eq!(played.reply(), (0, 0, Reply::Says(vec![7])));
        played.sessions.ended("a", Ended::failed("its process has ended"));
        assert!(played.channel.1.try_recv().is_err());
        played.said("a", 0, 1, &[8], None);
        assert_eq!(played.reply(), (0, 1, Reply::Ends(Ended::failed("its process has ended"))));
        // Late: the environment has the move.
        played.open("b", 1);
        assert!(played.sessions.overdue(Duration::ZERO).is_empty(), "it has not been asked to begin");
        played.sessions.begun("b");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(played.sessions.overdue(Duration::from_millis(1)), ["b"]);
        let late = Ended::failed("the environment did not reply within 0.001 s");
        assert_eq!(played.reply(), (1, 0, Reply::Ends(late)));
        assert!(!played.sessions.are_open());
        // One that begins with too much is refused, and its environment is to be told, once.
        played.open("c", 2);
        let long: Vec<u32> = (1..60).collect();
        let told = refused(played.turn("c", &long, &json!({})));
        assert_eq!(told, (400, "it begins with more tokens than `max_read_tokens`".to_owned()));
        assert!(matches!(played.reply(), (2, 0, Reply::Ends(Ended { reward: None, .. }))));
        assert_eq!(played.sessions.overdue(Duration::from_secs(9)), ["c"]);
        assert!(played.sessions.overdue(Duration::from_secs(9)).is_empty());
        // One with a token that no tokenizer has.
        played.open("d", 3);
        let (status, why) = refused(played.turn("d", &[1, 2, u32::MAX], &json!({})));
        assert_eq!(
            (status, why.as_str()),
            (400, "it has token 4294967295; expected one below 1000, as the tokenizer has")
        );
        assert!(matches!(played.reply(), (3, 0, Reply::Ends(Ended { reward: None, .. }))));
        // A body that is too long.
        let long = format!("[{}]", "1,".repeat(LONGEST / 2 + 1));
        let key = played.endpoint.key.clone();
        assert_eq!(refused(played.ask("POST /inference/v1/generate", &key, &long)).0, 413);
    }
}
