//! An environment outside of the program: a process that begins episodes, as verifiers' does, and asks the program's endpoint for
//! the turns of their model. Its process only passes on what is said in this one. It can be honest or not, in its lines and in
//! its requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::loopback::Door;
use crate::{Chance, mangled};

/// The process: it connects to this one, and passes on lines both ways. Asked for problems, it prints a file.
const RELAY: &str = "[ \"$3\" = make ] && exec cat \"$PROBLEMS\"
exec 3<>/dev/tcp/127.0.0.1/$PORT 4<&0 || exit 1
cat <&4 >&3 &
cat <&3";

/// Turns of an honest episode at most.
const TURNS: u64 = 3;
/// A question mark, a colon, and the first digit in the vocabulary of the model that plays.
const ASKS: u32 = 14;
const BEGINS: u32 = 13;
const DIGIT: u32 = 1;
/// How long an answer of the endpoint is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The config of a run of half a second. The process's command and the seconds of its turns are to be filled in.
pub const CONFIG: &str = r#"
[run]
seed = 1
steps = 4
groups = 4
rollouts = 4

[budget]
rollouts = 4000

[policy]
use = "uniform"

[model]
use = "tiny-guess"
threads = 1
rows = 16

[sampling]
max_tokens = 24

[environment]
use = "verifiers"
max_turns = 6
max_read_tokens = 60
max_rows = 2
retries = 1

[environment.process]
command = COMMAND
processes = 2
start_seconds = 5
seconds = SECONDS

[reward]
grader = "episode"

[optimizer]
learning_rate = 3e-4

[evaluation]
every = 2
rollouts = 1

[checkpoint]
every = 1

[[data]]
held_out = 0.2

[data.environment]
use = "verifiers"
tasks = ["digits"]
"#;

pub struct Server {
    /// Its process, as a list in TOML.
    pub command: String,
    shared: Arc<Shared>,
    _door: Door,
    _folder: tempfile::TempDir,
}

#[derive(Default)]
struct Shared {
    /// What it lies by, and at one in how many lines or requests; not at all where there is none.
    lies: Mutex<Option<(Chance, usize)>>,
    /// How often it did.
    lied: Mutex<u64>,
    /// Its processes' connections, and a session of before.
    open: Mutex<Vec<TcpStream>>,
    before: Mutex<String>,
}

impl Server {
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let inside = shared.clone();
        let door = Door::open(move |stream| _ = play(&inside, stream));
        let folder = tempfile::tempdir().unwrap();
        let problems = folder.path().join("problems.jsonl");
        let row = |i: u32| {
            let answer = json!({"environment": "verifiers", "task": "digits", "settings": {}, "data": {"digit": i % 10}});
            let row = json!({"question": format!("{i}:"), "answer": answer});
            json!({"task": 0, "row": row.to_string()}).to_string() + "\n"
        };
        std::fs::write(&problems, (0..20).map(row).collect::<String>()).unwrap();
        let port = door.address.rsplit(':').next().unwrap_or_default().to_owned();
        let set = [format!("PORT={port}"), format!("PROBLEMS={}", problems.display())];
        let words: Vec<&str> = ["env", &set[0], &set[1], "bash", "-c", RELAY, "environment"].to_vec();
        let command = toml::Value::try_from(words).unwrap().to_string();
        Self { command, shared, _door: door, _folder: folder }
    }

    /// Its processes lose their connections, and end.
    pub fn die(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lies at one in so many lines and requests from now on.
    pub fn lie(&self, chance: Chance, one_in: usize) {
        *self.shared.lies.lock().unwrap() = Some((chance, one_in));
    }

    /// Is honest from now on. How often it lied before.
    pub fn be_honest(&self) -> u64 {
        *self.shared.lies.lock().unwrap() = None;
        std::mem::take(&mut *self.shared.lied.lock().unwrap())
    }
}

impl Shared {
    /// What to lie by this time, if it is one.
    fn lie(&self) -> Option<Chance> {
        let mut lies = self.lies.lock().unwrap();
        let (chance, one_in) = lies.as_mut()?;
        if chance.below(*one_in) > 0 {
            return None;
        }
        *self.lied.lock().unwrap() += 1;
        Some(Chance(chance.next()))
    }
}

/// A process's lines, until it ends.
fn play(shared: &Arc<Shared>, stream: TcpStream) -> Option<()> {
    shared.open.lock().unwrap().push(stream.try_clone().ok()?);
    let to = Arc::new(Mutex::new(stream.try_clone().ok()?));
    say(shared, &to, json!({ "name": "verifiers", "version": "0" }));
    for line in BufReader::new(stream).lines() {
        let asked: Value = serde_json::from_str(&line.ok()?).ok()?;
        let id = asked["id"].clone();
        let begins = |data: &Value| vec![BEGINS, DIGIT + data["digit"].as_u64().unwrap_or(0) as u32, ASKS];
        match asked["do"].as_str()? {
            "probe" => {
                let first: Vec<_> = asked["data"].as_array()?.iter().map(begins).collect();
                say(shared, &to, json!({ "id": id, "first": first, "stops": [] }));
            }
            "begin" => {
                let (shared, to, tokens) = (shared.clone(), to.clone(), begins(&asked["data"]));
                std::thread::spawn(move || {
                    let said = match episode(&shared, &asked, tokens) {
                        Some(reward) => json!({ "id": id, "rewards": { "reward": reward } }),
                        None => json!({ "id": id, "error": "a turn was refused" }),
                    };
                    say(&shared, &to, said);
                });
            }
            _ => say(shared, &to, json!({ "id": id })),
        }
    }
    Some(())
}

/// Writes a line, or something else.
fn say(shared: &Shared, to: &Mutex<TcpStream>, mut line: Value) {
    let mut bytes = format!("{line}\n").into_bytes();
    if let Some(mut chance) = shared.lie() {
        match chance.below(12) {
            0..=4 => {
                mangled::change(&mut line, &mut chance);
                bytes = format!("{line}\n").into_bytes();
            }
            5 | 6 => mangled::mangle_bytes(&mut bytes, &mut chance),
            7 => bytes.extend(bytes.clone()),
            8 => {
                bytes = match chance.below(4) {
                    0 => [vec![b'['; 200_000], b"\n".to_vec()].concat(),
                    1 => vec![b'x'; 20 << 20],
                    2 => b"\n\n\n".to_vec(),
                    _ => vec![0xff; 100],
                }
            }
            9 => std::thread::sleep(Duration::from_millis(chance.below(400) as u64)),
            10 => return,
            _ => _ = to.lock().unwrap().shutdown(Shutdown::Both),
        }
    }
    let _ = to.lock().unwrap().write_all(&bytes);
}

/// An episode to its reward, which follows from what was said; none if a turn was refused.
fn episode(shared: &Shared, asked: &Value, mut tokens: Vec<u32>) -> Option<f64> {
    let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
    let (url, key, session) = (text("url"), text("key"), text("session"));
    let address = url.trim_start_matches("http://").trim_end_matches("/v1");
    let mut sum = 0;
    for _ in 0..=asked["seed"].as_u64()? % TURNS {
        let sampling = json!({ "session": session, "stop_token_ids": [0], "logprobs": 1 });
        let body = json!({ "model": "policy", "token_ids": tokens, "sampling_params": sampling });
        let lie = shared.lie();
        let said: Value = serde_json::from_str(&request(shared, address, &key, body, lie)?).ok()?;
        let turn = said["choices"][0]["token_ids"].as_array()?;
        let turn: Vec<u32> = turn.iter().filter_map(|token| Some(token.as_u64()? as u32)).collect();
        sum += turn.iter().sum::<u32>();
        tokens.extend(turn);
        if said["choices"][0]["finish_reason"] == "length" {
            break;
        }
        tokens.push(ASKS);
    }
    *shared.before.lock().unwrap() = session;
    Some(f64::from(sum % 2))
}

/// A request for a turn, or something else. What is said, if it is a turn.
fn request(
    shared: &Shared,
    address: &str,
    key: &str,
    mut body: Value,
    lie: Option<Chance>,
) -> Option<String> {
    let (mut key, mut head) = (key.to_owned(), "POST /inference/v1/generate HTTP/1.1".to_owned());
    let (mut more, mut length, mut after) = (String::new(), 0_i64, PATIENCE);
    let mut bytes = None;
    if let Some(mut chance) = lie {
        match chance.below(16) {
            0..=3 => mangled::change(&mut body, &mut chance),
            4 => {
                let mut changed = body.to_string().into_bytes();
                mangled::mangle_bytes(&mut changed, &mut chance);
                bytes = Some(changed);
            }
            5 => (*chance.of_these(&["", "EMPTY", "\u{e9}"])).clone_into(&mut key),
            6 => {
                let heads = ["GET /v1/models HTTP/1.1", "POST / HTTP/1.1", "\0\r\n", "PUT"];
                (*chance.of_these(&heads)).clone_into(&mut head);
            }
            7 => length = *chance.of_these(&[-3, 5, 1 << 40]),
            // It goes before it has heard anything.
            8 => after = Duration::from_millis(1),
            9 => {
                let (shared, address) = (Arc::new(Shared::default()), address.to_owned());
                let (key, body) = (key.clone(), body.clone());
                std::thread::spawn(move || request(&shared, &address, &key, body, None));
            }
            10 => body["token_ids"] = json!(vec![*chance.of_these(&[0, 1, 99, u32::MAX]); 3]),
            11 => body["token_ids"] = json!(vec![1; *chance.of_these(&[0, 1_000, 1_000_000])]),
            12 => body["sampling_params"]["session"] = shared.before.lock().unwrap().as_str().into(),
            13 => body["sampling_params"]["temperature"] = 0.5.into(),
            14 => more = format!("x-more: {}\r\n", "x".repeat(*chance.of_these(&[9_000, 1_000_000]))),
            _ => bytes = Some(vec![b'['; 300_000]),
        }
        // What is wrong with a length is found when no more comes.
        if length > 0 {
            after = Duration::from_millis(300);
        }
    }
    let bytes = bytes.unwrap_or_else(|| body.to_string().into_bytes());
    let length = (bytes.len() as i64 + length).max(0);
    let mut stream = TcpStream::connect(address).ok()?;
    let _ = stream.set_read_timeout(Some(after));
    let head = format!(
        "{head}\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // One that is refused early is not read to its end.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    let (head, body) = said.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}
