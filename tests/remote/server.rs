//! A small server that speaks the Tinker protocol, in threads of the test, with the model that ships behind it.
//! Field names and manners are those of SkyRL's `skyrl/tinker/api.py` and of the `tinker` package's types;
//! losses and means are written here once more, from SkyRL's `skyrl/tinker/loss_fns.py` and `backends/jax.py`.
//! And it can do wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allot_engine::core::{Core, PassOptions, Request, Sequence, TokenStatistics};
use allot_engine::cpu::{Cpu, LoraConfig, Setup};
use allot_engine::model::{Checkpoint, Precision};
use allot_engine::{OptimizerConfig, Sampling, Stops};
use candle_core::Device;
use serde_json::{Value, json};

use crate::loopback::{self, Door, Tricks};

#[path = "protobuf.rs"]
mod protobuf;

pub const KEY: &str = "tml-secretsecretsecret";
pub const MODEL: &str = "allot/tiny-sums";
const MANNER: PassOptions = PassOptions { temperature: 1.0, recompute: false };

/// What the losses of tokens come to.
#[derive(Clone, Copy, PartialEq)]
pub enum Mean {
    Sum,
    SequenceMean,
}

pub type Trick = loopback::Trick<What>;

/// What it does wrong.
pub enum What {
    /// Does nothing, and says so.
    Status(u16, &'static str),
    /// Does it, and hangs up.
    HangUp,
    /// Does it, and hangs up in the middle of its answer.
    Cut,
    /// Does it, and answers after so long.
    Slow(Duration),
    /// Says that it is still at it.
    Busy,
    /// Changes what it promised.
    Edit(fn(&mut Value)),
    /// Says this.
    Raw(&'static str),
    /// Does it, and says the first half of it as if that were all, where that is protobuf.
    Half,
    /// Gives the promise of the request before.
    Before,
    /// Is started anew, and then asked.
    Die,
    /// Does it, and is started anew before it answers.
    DoAndDie,
}

/// The server, until it is dropped.
pub struct Server {
    pub url: String,
    shared: Arc<Shared>,
    _door: Door,
}

struct Shared {
    world: Mutex<World>,
    /// Lines that are open, and the most that were.
    open: AtomicUsize,
    most: AtomicUsize,
}

/// All that it knows. Only what was saved outlives it.
struct World {
    mean: Mean,
    folder: tempfile::TempDir,
    base: PathBuf,
    locked: bool,
    /// Takes and gives protobuf where SkyRL does from 0.4.0 on.
    newer: bool,
    /// Seeds as they come, to those that the engine on this machine has for the same rollouts.
    seeds: HashMap<u64, u64>,
    saved: BTreeMap<String, PathBuf>,
    sessions: HashSet<String>,
    models: BTreeMap<String, Model>,
    /// The models as they were saved for sampling, which an update does not change.
    samplers: BTreeMap<String, Box<dyn Core + Send>>,
    /// What was promised, and how often it is not ready yet.
    promises: BTreeMap<String, (Result<Value, String>, usize)>,
    numbers: u64,
    /// The promise that was given last.
    last: String,
    tricks: Tricks<What>,
    removed: usize,
}

struct Model {
    core: Box<dyn Core + Send>,
    /// Since the last step.
    gathered: Vec<Datum>,
    /// What was asked under each number, and what was promised.
    requests: BTreeMap<u64, (String, Value, String)>,
    names: HashSet<String>,
    used: bool,
}

#[derive(Clone)]
struct Datum {
    tokens: Vec<u32>,
    prompt: usize,
    old: Vec<f64>,
    advantages: Vec<f64>,
    kind: String,
    low: f64,
    high: f64,
}

/// An answer: its status and its words, and whether those are protobuf.
type Answer = (u16, Vec<u8>, bool);

impl Server {
    pub fn start(mean: Mean) -> Self {
        let world = World {
            mean,
            folder: tempfile::tempdir().unwrap(),
            base: allot_models::find("tiny-sums").unwrap(),
            locked: false,
            newer: false,
            seeds: loopback::seeds(),
            saved: BTreeMap::new(),
            sessions: HashSet::new(),
            models: BTreeMap::new(),
            samplers: BTreeMap::new(),
            promises: BTreeMap::new(),
            numbers: 0,
            last: String::new(),
            tricks: Tricks::none(),
            removed: 0,
        };
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let inside = shared.clone();
        let door = Door::open(move |stream| {
            let open = inside.open.fetch_add(1, Ordering::SeqCst) + 1;
            inside.most.fetch_max(open, Ordering::SeqCst);
            loopback::serve(stream, |to, asked| inside.answer(to, &Asked::of(asked)));
            inside.open.fetch_sub(1, Ordering::SeqCst);
        });
        Self { url: format!("http://{}", door.address), shared, _door: door }
    }

    /// Wants a key.
    pub fn locked(self) -> Self {
        self.shared.world.lock().unwrap().locked = true;
        self
    }

    /// Takes lessons as protobuf alone.
    pub fn newer(self) -> Self {
        self.shared.world.lock().unwrap().newer = true;
        self
    }

    /// Does this from now on, counted from now.
    pub fn play(&self, tricks: Vec<Trick>) {
        self.shared.world.lock().unwrap().tricks.play(tricks);
    }

    /// Is started anew.
    pub fn die(&self) {
        self.shared.world.lock().unwrap().die();
    }

    /// Loses all that was saved.
    pub fn clear(&self) {
        self.shared.world.lock().unwrap().saved.clear();
    }

    /// How often a verb was spoken since [`Server::play`].
    pub fn asked(&self, verb: &str) -> usize {
        self.shared.world.lock().unwrap().tricks.asked(verb)
    }

    /// The most lines that were open at a time.
    pub fn lines(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }

    /// States that are kept, and how many were removed.
    pub fn states(&self) -> (usize, usize) {
        let world = self.shared.world.lock().unwrap();
        (world.saved.len(), world.removed)
    }
}

/// What came in one exchange.
struct Asked {
    method: String,
    path: String,
    key: Option<String>,
    body: Value,
    /// Whether it came as protobuf, and then whether it is for looking alone.
    binary: bool,
    forward: bool,
}

impl Asked {
    fn of(asked: &loopback::Asked) -> Self {
        let binary = asked.header("content-type") == Some(protobuf::CONTENT);
        let (body, forward) = if binary {
            protobuf::request(&asked.body)
        } else {
            (serde_json::from_slice(&asked.body).unwrap_or_default(), false)
        };
        let key = asked.header("x-api-key").map(str::to_owned);
        Self { method: asked.method.clone(), path: asked.path.clone(), key, body, binary, forward }
    }
}

impl Shared {
    /// One exchange. Whether the line stays open.
    fn answer(&self, to: &mut TcpStream, asked: &Asked) -> bool {
        let Asked { method, path, key, body, .. } = asked;
        let mut world = self.world.lock().unwrap();
        let verb = path.strip_prefix("/api/v1/").unwrap_or("").to_owned();
        let mut pause = Duration::ZERO;
        let (mut hang_up, mut cut, mut half, mut die) = (false, false, false, false);
        let mut said: Option<Answer> = None;
        let mut edit: Option<fn(&mut Value)> = None;
        let mut before = None;
        let last = world.last.clone();
        if let Some(what) = world.tricks.next(&verb) {
            match what {
                What::Status(status, words) => said = Some((*status, words.as_bytes().to_vec(), false)),
                What::HangUp => hang_up = true,
                What::Cut => cut = true,
                What::Slow(time) => pause = *time,
                What::Busy => {
                    let id = &body["request_id"];
                    let busy =
                        json!({ "type": "try_again", "request_id": id, "queue_state": "paused_capacity" });
                    said = Some((200, busy.to_string().into_bytes(), false));
                }
                What::Edit(change) => edit = Some(*change),
                What::Raw(words) => said = Some((200, words.as_bytes().to_vec(), false)),
                What::Half => half = true,
                What::Before => before = Some(last),
                What::Die => world.die(),
                What::DoAndDie => (die, hang_up) = (true, true),
            }
        }
        let (status, text, binary) = said.unwrap_or_else(|| {
            if world.locked && key.as_deref() != Some(KEY) {
                let said = format!("no such key: {}", key.as_deref().unwrap_or("none"));
                return (401, json!({ "detail": said }).to_string().into_bytes(), false);
            }
            let (status, mut value) = match (method.as_str(), verb.as_str()) {
                ("DELETE", _) => world.remove(&verb),
                (_, "forward") if world.newer => detail(404, "Not Found"),
                (_, "forward_backward") if world.newer && !asked.binary => {
                    detail(415, "forward_backward requires a application/x-protobuf body")
                }
                (_, "forward_backward") if asked.forward => world.act("forward", body),
                _ => world.act(&verb, body),
            };
            if let Some(edit) = edit {
                edit(&mut value);
            }
            if let Some(before) = before {
                value["request_id"] = json!(before);
            }
            let message = if world.newer { protobuf::answer(&value) } else { None };
            let binary = message.is_some();
            (status, message.unwrap_or_else(|| value.to_string().into_bytes()), binary)
        });
        if die {
            world.die();
        }
        drop(world);
        std::thread::sleep(pause);
        if hang_up {
            return false;
        }
        let text = if half && binary { &text[..text.len() / 2] } else { &text[..] };
        let content = if binary { protobuf::CONTENT } else { "application/json" };
        loopback::say(to, status, content, text, cut)
    }
}

fn detail(status: u16, words: &str) -> (u16, Value) {
    (status, json!({ "detail": words }))
}

impl World {
    fn die(&mut self) {
        self.sessions.clear();
        self.models.clear();
        self.samplers.clear();
        self.promises.clear();
    }

    fn name(&mut self, what: &str) -> String {
        self.numbers += 1;
        format!("{what}{}", self.numbers)
    }

    /// Does what is asked, right away; what it came to is a promise.
    fn act(&mut self, verb: &str, body: &Value) -> (u16, Value) {
        match verb {
            "healthz" => (200, json!({ "status": "ok" })),
            "get_server_capabilities" => (200, json!({ "supported_models": [{ "model_name": MODEL }] })),
            "create_session" => {
                assert!(body["tags"].is_array() && body["sdk_version"].is_string(), "{body}");
                let id = self.name("session_");
                self.sessions.insert(id.clone());
                (200, json!({ "type": "create_session", "session_id": id }))
            }
            "session_heartbeat" => (200, json!({ "type": "session_heartbeat" })),
            "create_model" => self.create(body),
            "retrieve_future" => self.retrieve(body),
            "asample" => self.sample(body),
            "load_weights"
            | "forward"
            | "forward_backward"
            | "optim_step"
            | "save_weights"
            | "save_weights_for_sampler" => self.train(verb, body),
            _ => detail(404, "Not Found"),
        }
    }

    /// A promise, which takes a few words until it is kept: others that came later may be first.
    fn promise(&mut self, result: Result<Value, String>) -> (u16, Value) {
        let id = self.name("");
        let polls = (self.numbers as usize * 7 % 5) / 3;
        self.promises.insert(id.clone(), (result, polls));
        self.last.clone_from(&id);
        (200, json!({ "request_id": id, "future_id": id, "status": "pending" }))
    }

    fn retrieve(&mut self, body: &Value) -> (u16, Value) {
        let Some((result, polls)) = self.promises.get_mut(body["request_id"].as_str().unwrap()) else {
            return detail(404, "Future not found");
        };
        if *polls > 0 {
            *polls -= 1;
            let id = &body["request_id"];
            return (200, json!({ "type": "try_again", "request_id": id, "queue_state": "active" }));
        }
        match result {
            Ok(value) => (200, value.clone()),
            Err(words) => detail(400, words),
        }
    }

    fn create(&mut self, body: &Value) -> (u16, Value) {
        if !self.sessions.contains(body["session_id"].as_str().unwrap()) {
            return detail(404, "Session not found");
        }
        assert_eq!(body["base_model"], MODEL);
        let lora = &body["lora_config"];
        let setup = Setup {
            precision: Precision::F32,
            threads: 1,
            longest: 64,
            lora: Some(LoraConfig { rank: lora["rank"].as_u64().unwrap() as usize, alpha: 32.0 }),
            reference: false,
            seed: lora["seed"].as_u64().unwrap(),
        };
        let core = Cpu::new(&Checkpoint::load(&self.base, &Device::Cpu).unwrap(), setup).unwrap();
        let id = self.name("model_");
        let model = Model {
            core: Box::new(core),
            gathered: Vec::new(),
            requests: BTreeMap::new(),
            names: HashSet::new(),
            used: false,
        };
        self.models.insert(id.clone(), model);
        self.promise(Ok(json!({ "type": "create_model", "model_id": id })))
    }

    fn sample(&mut self, body: &Value) -> (u16, Value) {
        assert!(body["seq_id"].is_u64(), "{body}");
        let sampler = body["sampling_session_id"].as_str().unwrap();
        let Some(core) = self.samplers.get(sampler) else {
            return detail(404, "Sampling session not found");
        };
        let (p, n) = (&body["sampling_params"], body["num_samples"].as_u64().unwrap());
        let sampling = Sampling {
            temperature: p["temperature"].as_f64().unwrap() as f32,
            top_k: p["top_k"].as_i64().unwrap().max(0) as usize,
            top_p: p["top_p"].as_f64().unwrap() as f32,
            max_tokens: p["max_tokens"].as_u64().unwrap() as u32,
            ..Sampling::default()
        };
        let (prompt, stops) =
            (numbers(&body["prompt"]["chunks"][0]["tokens"]), Stops::from(numbers(&p["stop"])));
        let seed = p["seed"].as_u64().unwrap();
        // As SkyRL and vLLM do: the first one's seed, and on from there.
        let seeds: Vec<u64> =
            (seed..seed + n).map(|s| if n == 1 { self.seeds.get(&s).copied().unwrap() } else { s }).collect();
        let requests: Vec<Request<'_>> = seeds
            .iter()
            .map(|seed| Request { prompt: &prompt, history: &[], seed: *seed, sampling })
            .collect();
        let answers = core.answers(&requests, &stops, 8).unwrap();
        let one = |a: &allot_engine::core::Answered| {
            let stop = if a.truncated { "length" } else { "stop" };
            json!({ "stop_reason": stop, "tokens": a.tokens, "logprobs": a.log_probs })
        };
        let sequences: Vec<Value> = answers.iter().map(one).collect();
        self.promise(Ok(json!({ "sequences": sequences, "prompt_logprobs": null })))
    }

    /// What has a number, and is done once for it.
    fn train(&mut self, verb: &str, body: &Value) -> (u16, Value) {
        let id = body["model_id"].as_str().unwrap().to_owned();
        let Some(model) = self.models.get_mut(&id) else { return detail(404, "Model not found") };
        let number = body["seq_id"].as_u64().unwrap();
        if let Some((other, before, promise)) = model.requests.get(&number) {
            // As SkyRL has it: saves are known by their name alone, and there is one first request.
            if verb == "load_weights" {
                return detail(400, &format!("LoadWeights is not permitted with seq_id {number}"));
            }
            if verb.starts_with("save") {
                return detail(409, "Checkpoint already exists");
            }
            if other != verb || before != body {
                return detail(409, "Training request sequence number was reused");
            }
            return (200, json!({ "request_id": promise }));
        }
        let last = model.requests.keys().next_back().copied().unwrap_or(0);
        assert_eq!(number, last + 1, "numbers are given in their order");
        let result = self.done(verb, &id, body);
        if let Err((status, words)) = result {
            return detail(status, &words);
        }
        let answer = self.promise(result.map_err(|(_, words)| words));
        let promise = answer.1["request_id"].as_str().unwrap().to_owned();
        let requests = &mut self.models.get_mut(&id).unwrap().requests;
        requests.insert(number, (verb.to_owned(), body.clone(), promise));
        answer
    }

    fn done(&mut self, verb: &str, id: &str, body: &Value) -> Result<Value, (u16, String)> {
        let path = |kind: &str, name: &str| format!("tinker://{id}/{kind}/{name}");
        let name = body["path"].as_str().unwrap_or_default().to_owned();
        let model = self.models.get_mut(id).unwrap();
        let used = std::mem::replace(&mut model.used, true);
        match verb {
            "load_weights" => {
                assert!(!used && body["optimizer"] == true);
                let Some(folder) = self.saved.get(&name) else {
                    return Err((404, format!("Checkpoint not found: {name}")));
                };
                let steps: u32 = std::fs::read_to_string(folder.join("steps")).unwrap().parse().unwrap();
                model.core.load_training(folder, &self.base, steps).unwrap();
                Ok(json!({ "type": "load_weights" }))
            }
            "save_weights" => {
                assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{name}");
                if !model.names.insert(name.clone()) {
                    return Err((409, format!("Checkpoint '{name}' already exists for model '{id}'")));
                }
                let folder = self.folder.path().join(format!("{id}-{name}"));
                std::fs::create_dir(&folder).unwrap();
                model.core.save_training(&folder).unwrap();
                std::fs::write(folder.join("steps"), model.core.steps().to_string()).unwrap();
                self.saved.insert(path("weights", &name), folder);
                Ok(json!({ "type": "save_weights", "path": path("weights", &name) }))
            }
            "save_weights_for_sampler" => {
                assert!(body["sampling_session_seq_id"].is_u64());
                let copy = model.core.fork().unwrap().unwrap();
                let sampler = self.name("sampling_");
                self.samplers.insert(sampler.clone(), copy);
                Ok(
                    json!({ "type": "save_weights_for_sampler", "sampling_session_id": sampler, "path": null }),
                )
            }
            "optim_step" => {
                let gathered = std::mem::take(&mut model.gathered);
                let norm = step(model.core.as_mut(), &gathered, self.mean, &body["adam_params"]);
                Ok(json!({ "metrics": { "skyrl.ai/grad_norm": norm } }))
            }
            _ => {
                let key = if verb == "forward" { "forward_input" } else { "forward_backward_input" };
                let data = data(&body[key]);
                let sequences: Vec<Sequence<'_>> = data
                    .iter()
                    .map(|d| Sequence { tokens: &d.tokens, prompt: d.prompt, observed: &[], mask: None })
                    .collect();
                let statistics = model.core.score(&sequences, MANNER, false).unwrap();
                let one = |(statistics, datum): (&Vec<TokenStatistics>, &Datum)| {
                    // Those of the prompt are nobody's.
                    let prompt = std::iter::repeat_n(-7.0, datum.prompt - 1);
                    let all: Vec<f32> = prompt.chain(statistics.iter().map(|t| t.log_prob)).collect();
                    json!({ "logprobs": { "data": all, "dtype": "float32", "shape": [all.len()] } })
                };
                let outputs: Vec<Value> = statistics.iter().zip(&data).map(one).collect();
                if verb == "forward_backward" {
                    model.gathered.extend(data);
                }
                Ok(json!({ "loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {} }))
            }
        }
    }

    fn remove(&mut self, verb: &str) -> (u16, Value) {
        let words: Vec<&str> = verb.split('/').collect();
        let ["training_runs", model, "checkpoints", kind, name] = words[..] else { return detail(404, "") };
        let removed = self.saved.remove(&format!("tinker://{model}/{kind}/{name}"));
        self.removed += usize::from(removed.is_some());
        (if removed.is_some() { 204 } else { 404 }, Value::Null)
    }
}

/// One step of the optimizer on what was gathered, by the server's own mean.
fn step(core: &mut dyn Core, gathered: &[Datum], mean: Mean, adam: &Value) -> f64 {
    let sequences: Vec<Sequence<'_>> = gathered
        .iter()
        .map(|d| Sequence { tokens: &d.tokens, prompt: d.prompt, observed: &[], mask: None })
        .collect();
    let all = gathered.len() as f64;
    core.learn(&sequences, MANNER, &|i, statistics| {
        let d = &gathered[i];
        let share = match mean {
            Mean::Sum => 1.0,
            Mean::SequenceMean => 1.0 / (statistics.len() as f64 * all),
        };
        let one = |(t, statistics): (usize, &TokenStatistics)| {
            let (a, ratio) = (d.advantages[t], (f64::from(statistics.log_prob) - d.old[t]).exp());
            let clipped = ratio.clamp(d.low, d.high);
            let slope = match d.kind.as_str() {
                "cispo" => -clipped * a,
                _ if ratio * a <= clipped * a => -ratio * a,
                _ => 0.0,
            };
            (slope * share) as f32
        };
        statistics.iter().enumerate().map(one).collect()
    })
    .unwrap();
    let number = |key: &str| adam[key].as_f64().unwrap();
    let config = OptimizerConfig {
        beta1: number("beta1"),
        beta2: number("beta2"),
        epsilon: number("eps"),
        weight_decay: number("weight_decay"),
        max_norm: adam["grad_clip_norm"].as_f64().unwrap_or(0.0),
        ..OptimizerConfig::default()
    };
    core.step(&config, number("learning_rate")).unwrap()
}

/// The data of a request. An answer begins where the weights do, or the log-probabilities.
fn data(input: &Value) -> Vec<Datum> {
    let one = |datum: &Value| {
        let inputs = &datum["loss_fn_inputs"];
        let (read, targets) = (
            numbers(&datum["model_input"]["chunks"][0]["tokens"]),
            numbers(&inputs["target_tokens"]["data"]),
        );
        assert_eq!(read[1..], targets[..targets.len() - 1]);
        let list = |key: &str| -> Vec<f64> {
            let data = inputs[key]["data"].as_array();
            data.map_or(Vec::new(), |d| d.iter().map(|x| x.as_f64().unwrap()).collect())
        };
        let (weights, old, advantages) = (list("weights"), list("logprobs"), list("advantages"));
        let mask = if weights.is_empty() { &old } else { &weights };
        let first = mask.iter().position(|x| *x != 0.0).unwrap();
        let answer = |all: Vec<f64>| all.get(first..).unwrap_or_default().to_vec();
        let config = &input["loss_fn_config"];
        Datum {
            tokens: [&read[..1], &targets].concat(),
            prompt: first + 1,
            old: answer(old),
            advantages: answer(advantages),
            kind: input["loss_fn"].as_str().unwrap().to_owned(),
            low: config["clip_low_threshold"].as_f64().unwrap_or(0.0),
            high: config["clip_high_threshold"].as_f64().unwrap_or(0.0),
        }
    };
    input["data"].as_array().unwrap().iter().map(one).collect()
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect()
}
