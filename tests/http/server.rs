//! A small server that judges, in threads of the test: a language model that compares texts, a reward model that
//! measures them, and a program of a user's own. Field names are those of vLLM 0.11 (`entrypoints/openai/protocol.py`,
//! `entrypoints/pooling/classify/protocol.py`), of SGLang's `v1/embeddings`, and of verl's `reward_loop.py`, which
//! reads both. And it can do wrong.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::loopback::{self, Asked, Door, Tricks};

pub const KEY: &str = "sk-secretsecretsecret";
pub const MODEL: &str = "judge-7b";

pub type Trick = loopback::Trick<What>;

/// What it does wrong.
#[derive(Clone)]
pub enum What {
    /// Does nothing, and says so.
    Status(u16, &'static str),
    /// Hangs up.
    HangUp,
    /// Hangs up in the middle of its reply.
    Cut,
    /// Replies after so long.
    Slow(Duration),
    /// Says this.
    Raw(&'static str),
    /// Says this as a language model.
    Text(&'static str),
    /// Its reply ends at its length limit.
    Long,
    /// Another model judges.
    Other,
}

/// The server, until it is dropped.
pub struct Server {
    pub url: String,
    shared: Arc<Shared>,
    _door: Door,
}

struct Shared {
    world: Mutex<World>,
}

struct World {
    tricks: Tricks<What>,
    /// Answers at which it always fails.
    poison: Option<&'static str>,
    /// Whether right is wrong to it.
    inverted: bool,
    key: Option<&'static str>,
    /// Bodies, with how often each came.
    bodies: HashMap<String, usize>,
    /// Requests under way, and the most that were.
    open: (usize, usize),
}

impl Server {
    pub fn start() -> Self {
        let world = World {
            tricks: Tricks::none(),
            poison: None,
            inverted: false,
            key: None,
            bodies: HashMap::new(),
            open: (0, 0),
        };
        let shared = Arc::new(Shared { world: Mutex::new(world) });
        let inside = shared.clone();
        let door = Door::open(move |stream| loopback::serve(stream, |to, asked| inside.answer(to, asked)));
        Self { url: format!("http://{}", door.address), shared, _door: door }
    }

    /// Does this from now on, counted from now.
    pub fn play(&self, tricks: Vec<Trick>) {
        let mut world = self.shared.world.lock().unwrap();
        world.tricks.play(tricks);
        world.bodies.clear();
        world.open = (0, 0);
    }

    /// Fails at answers with this in them.
    pub fn poison(&self, text: &'static str) {
        self.shared.world.lock().unwrap().poison = Some(text);
    }

    pub fn invert(&self) {
        self.shared.world.lock().unwrap().inverted = true;
    }

    pub fn lock(&self) {
        self.shared.world.lock().unwrap().key = Some(KEY);
    }

    /// How often it was asked to judge since [`Server::play`].
    pub fn asked(&self) -> usize {
        self.shared.world.lock().unwrap().bodies.values().sum()
    }

    /// What it was asked more than once.
    pub fn asked_again(&self) -> usize {
        self.shared.world.lock().unwrap().bodies.values().filter(|times| **times > 1).count()
    }

    /// The most requests that were under way at a time.
    pub fn most(&self) -> usize {
        self.shared.world.lock().unwrap().open.1
    }

    /// What it was asked, in no order.
    pub fn bodies(&self) -> Vec<Value> {
        let world = self.shared.world.lock().unwrap();
        world.bodies.keys().map(|body| serde_json::from_str(body).unwrap()).collect()
    }
}

impl Shared {
    /// One exchange. Whether the line stays open.
    fn answer(&self, to: &mut TcpStream, asked: &Asked) -> bool {
        let say = |to: &mut TcpStream, status, text: &Value| {
            loopback::say(to, status, "application/json", text.to_string().as_bytes(), false)
        };
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let (what, inverted) = {
            let mut world = self.world.lock().unwrap();
            let key = asked.header("authorization").and_then(|key| key.strip_prefix("Bearer "));
            if world.key.is_some() && key != world.key {
                return say(to, 401, &json!({ "error": { "message": "no such key" } }));
            }
            if asked.path.ends_with("/models") {
                let model =
                    json!({ "id": MODEL, "object": "model", "owned_by": "vllm", "root": "/models/judge" });
                return say(to, 200, &json!({ "object": "list", "data": [model] }));
            }
            let text = String::from_utf8_lossy(&asked.body).into_owned();
            let poisoned = world.poison.is_some_and(|poison| text.contains(poison));
            *world.bodies.entry(text).or_default() += 1;
            world.open.0 += 1;
            world.open.1 = world.open.1.max(world.open.0);
            let verb = asked.path.rsplit('/').next().unwrap().to_owned();
            let what = world.tricks.next(&verb).cloned();
            (if poisoned { Some(What::Status(500, "out of luck")) } else { what }, world.inverted)
        };
        let close = || self.world.lock().unwrap().open.0 -= 1;
        if let Some(What::Slow(pause)) = what {
            std::thread::sleep(pause);
        }
        let reply = judged(&asked.path, &body, inverted, what.as_ref());
        close();
        match what {
            Some(What::Status(status, detail)) => say(to, status, &json!({ "error": { "message": detail } })),
            Some(What::HangUp) => false,
            Some(What::Raw(text)) => loopback::say(to, 200, "application/json", text.as_bytes(), false),
            Some(What::Cut) => loopback::say(to, 200, "application/json", reply.to_string().as_bytes(), true),
            _ => match reply {
                Value::Null => say(to, 404, &json!({ "error": { "message": "Not Found" } })),
                reply => say(to, 200, &reply),
            },
        }
    }
}

/// What stands in a prompt between two lines.
pub fn between<'t>(text: &'t str, what: &str, mark: &str) -> &'t str {
    let (from, to) = (format!("[{what} {mark}]\n"), format!("\n[end of {what} {mark}]"));
    let rest = &text[text.find(&from).unwrap() + from.len()..];
    &rest[..rest.find(&to).unwrap()]
}

/// The mark in a prompt.
pub fn mark(prompt: &str) -> &str {
    prompt.split("with the mark ").nth(1).unwrap().split('.').next().unwrap()
}

/// The reply to a request.
fn judged(path: &str, body: &Value, inverted: bool, what: Option<&What>) -> Value {
    let model = if matches!(what, Some(What::Other)) { "judge-70b" } else { MODEL };
    let path = path.trim_start_matches('/');
    if path != "mine/judge" && body["model"] != MODEL {
        return Value::Null;
    }
    match path {
        "v1/chat/completions" => {
            let prompt = body["messages"][0]["content"].as_str().unwrap();
            let said = match what {
                Some(What::Text(text)) => (*text).to_owned(),
                _ => thought(prompt, inverted),
            };
            let reason = if matches!(what, Some(What::Long)) { "length" } else { "stop" };
            let message = json!({ "role": "assistant", "content": said });
            json!({
                "id": "chatcmpl-1", "object": "chat.completion", "model": model,
                "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
            })
        }
        "classify" => {
            let text = match body["input"].as_str() {
                Some(text) => text,
                None => body["messages"][1]["content"].as_str().unwrap(),
            };
            assert_eq!(body["use_activation"], false);
            let probs = [0.0, f64::from(text.len() as u32) / 8.0];
            json!({ "model": model, "data": [{ "index": 0, "label": "LABEL_1", "probs": probs, "num_classes": 2 }] })
        }
        "v1/embeddings" => {
            let length = f64::from(body["input"].as_str().unwrap().len() as u32);
            json!({ "model": model, "data": [{ "index": 0, "object": "embedding", "embedding": [length / 8.0] }] })
        }
        "score" => {
            let same = body["text_1"] == body["text_2"];
            json!({ "model": model, "data": [{ "index": 0, "object": "score", "score": f64::from(u8::from(same)) }] })
        }
        "mine/judge" => {
            let right = (body["solution_str"] == body["ground_truth"]) != inverted;
            json!({ "score": if right { 0.75 } else { -0.25 }, "acc": right, "name": "mine", "version": "3" })
        }
        _ => Value::Null,
    }
}

/// What a language model would say to the prompt that ships. It cites the answer, as models do.
fn thought(prompt: &str, inverted: bool) -> String {
    let mark = mark(prompt);
    let (gold, answer) = (between(prompt, "reference answer", mark), between(prompt, "answer", mark));
    let right = (gold == answer.trim()) != inverted;
    let word = if right { "yes" } else { "no" };
    format!("The answer says:\n{answer}\nThe reference is {gold}.\n\n**Verdict {mark}: {word}**\n")
}
