//! A small server that samples, in threads of the test, with the model that ships behind it: it speaks as SGLang or
//! as vLLM does, loads the weights that it is told to, and draws by the seeds that it is sent. Field names, statuses
//! and manners are those of SGLang 0.5.23 (`srt/entrypoints/http_server.py`, `srt/managers/io_struct.py`) and of vLLM
//! 0.32.0 (`entrypoints/scale_out/token_in_token_out`, `entrypoints/rl/online`, `entrypoints/serve/dev/rpc`). And it
//! can do wrong.

use std::collections::HashMap;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allot_engine::core::{Core, Request};
use allot_engine::cpu::{Cpu, Setup};
use allot_engine::model::{Checkpoint, Precision};
use allot_engine::{Sampling, Stops};
use allot_models::tokens::Tokens;
use candle_core::Device;
use serde_json::{Value, json};

use crate::loopback::{self, Asked, Door, Tricks};

pub const KEY: &str = "sk-secretsecretsecret";
pub const MODEL: &str = "tiny";

/// As which it speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Sglang,
    Vllm,
}

impl Kind {
    pub fn name(self) -> &'static str {
        if self == Self::Sglang { "sglang" } else { "vllm" }
    }

    /// The verb by which it samples, and the one by which it loads.
    pub fn verbs(self) -> (&'static str, &'static str) {
        match self {
            Self::Sglang => ("generate", "update_weights_from_disk"),
            Self::Vllm => ("inference/v1/generate", "collective_rpc"),
        }
    }
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
    /// Changes what it says.
    Edit(fn(&mut Value)),
    /// Says this.
    Raw(&'static str),
    /// Is started anew, and then asked.
    Die,
    /// Does it, and is started anew before it answers.
    DoAndDie,
    /// Another run gives it its own weights, and then it is asked.
    Taken,
}

/// The server, until it is dropped.
pub struct Server {
    pub url: String,
    pub kind: Kind,
    /// Where weights are handed over.
    pub weights: tempfile::TempDir,
    shared: Arc<Shared>,
    _door: Door,
}

struct Shared {
    world: Mutex<World>,
}

/// How it was started.
#[derive(Clone)]
pub struct Start {
    pub key: Option<&'static str>,
    pub context: usize,
    pub model_type: &'static str,
    pub seeded: bool,
    pub logprobs_mode: &'static str,
    pub scale_out: bool,
    pub dev_mode: bool,
    /// Tells log-probabilities of this temperature, whatever it draws at.
    pub tells: Option<f32>,
    /// The model that it serves until it is handed weights.
    pub model: &'static str,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            key: None,
            context: 64,
            model_type: "llama",
            seeded: true,
            logprobs_mode: "raw_logprobs",
            scale_out: true,
            dev_mode: true,
            tells: None,
            model: "tiny-sums",
        }
    }
}

struct World {
    kind: Kind,
    start: Start,
    base: PathBuf,
    tokens: Tokens,
    core: Box<dyn Core + Send>,
    label: String,
    path: String,
    paused: bool,
    loads: usize,
    /// Seeds as they come, to those that the engine on this machine has for the same rollouts.
    seeds: HashMap<u64, u64>,
    tricks: Tricks<What>,
}

/// An answer: its status and its words.
type Said = (u16, Value);

fn core(folder: &Path, longest: usize) -> Result<Box<dyn Core + Send>, String> {
    let setup =
        Setup { precision: Precision::F32, threads: 1, longest, lora: None, reference: false, seed: 0 };
    let checkpoint = Checkpoint::load(folder, &Device::Cpu).map_err(|e| e.to_string())?;
    Ok(Box::new(Cpu::new(&checkpoint, setup).map_err(|e| e.to_string())?))
}

impl Server {
    pub fn start(kind: Kind) -> Self {
        Self::started(kind, Start::default())
    }

    pub fn started(kind: Kind, start: Start) -> Self {
        let (base, longest) = (allot_models::find(start.model).unwrap(), start.context.max(64));
        let world = World {
            kind,
            start,
            core: core(&base, longest).unwrap(),
            tokens: Tokens::read(&base).unwrap(),
            label: "default".to_owned(),
            path: base.display().to_string(),
            base,
            paused: false,
            loads: 0,
            seeds: loopback::seeds(),
            tricks: Tricks::none(),
        };
        let shared = Arc::new(Shared { world: Mutex::new(world) });
        let inside = shared.clone();
        let door = Door::open(move |stream| loopback::serve(stream, |to, asked| inside.answer(to, asked)));
        let (url, weights) = (format!("http://{}", door.address), tempfile::tempdir().unwrap());
        Self { url, kind, weights, shared, _door: door }
    }

    /// Does this from now on, counted from now.
    pub fn play(&self, tricks: Vec<Trick>) {
        self.shared.world.lock().unwrap().tricks.play(tricks);
    }

    /// Is started anew.
    pub fn die(&self) {
        self.shared.world.lock().unwrap().die();
    }

    /// How often a verb was spoken since [`Server::play`].
    pub fn asked(&self, verb: &str) -> usize {
        self.shared.world.lock().unwrap().tricks.asked(verb)
    }

    /// How often weights were loaded.
    pub fn loads(&self) -> usize {
        self.shared.world.lock().unwrap().loads
    }

    /// Names of what lies where weights are handed over.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.weights.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Shared {
    /// One exchange. Whether the line stays open.
    fn answer(&self, to: &mut TcpStream, asked: &Asked) -> bool {
        let (method, path) = (asked.method.as_str(), asked.path.as_str());
        let key = asked.header("authorization").and_then(|key| key.strip_prefix("Bearer "));
        let body: &Value = &serde_json::from_slice(&asked.body).unwrap_or_default();
        let mut world = self.world.lock().unwrap();
        let verb = path.trim_start_matches('/').split('?').next().unwrap().to_owned();
        let mut pause = Duration::ZERO;
        let (mut hang_up, mut cut, mut die) = (false, false, false);
        let mut said: Option<(u16, String)> = None;
        let mut edit: Option<fn(&mut Value)> = None;
        if let Some(what) = world.tricks.next(&verb) {
            match what {
                What::Status(status, words) => said = Some((*status, (*words).to_owned())),
                What::HangUp => hang_up = true,
                What::Cut => cut = true,
                What::Slow(time) => pause = *time,
                What::Edit(change) => edit = Some(*change),
                What::Raw(words) => said = Some((200, (*words).to_owned())),
                What::Die => world.die(),
                What::DoAndDie => (die, hang_up) = (true, true),
                What::Taken => "allot-0badcafe-000003-feedfeedfeedfeed".clone_into(&mut world.label),
            }
        }
        let (status, text) = said.unwrap_or_else(|| {
            let (status, mut value) = world.act((method, path, &verb), key, body);
            if let Some(edit) = edit {
                edit(&mut value);
            }
            (status, value.to_string())
        });
        if die {
            world.die();
        }
        drop(world);
        std::thread::sleep(pause);
        if hang_up {
            return false;
        }
        loopback::say(to, status, "application/json", text.as_bytes(), cut)
    }
}

/// An error as both servers have it.
fn error(status: u16, kind: &str, words: &str) -> Said {
    (status, json!({ "error": { "message": words, "type": kind, "param": null, "code": status } }))
}

impl World {
    fn die(&mut self) {
        let base = self.base.clone();
        self.core = core(&base, self.start.context.max(64)).unwrap();
        "default".clone_into(&mut self.label);
        self.path = base.display().to_string();
        self.paused = false;
    }

    fn act(&mut self, (method, path, verb): (&str, &str, &str), key: Option<&str>, body: &Value) -> Said {
        // SGLang locks all but its health, vLLM what begins so.
        let locked = self.kind == Kind::Sglang || verb.starts_with("v1") || verb.starts_with("inference");
        if let Some(own) = self.start.key.filter(|own| locked && key != Some(own)) {
            assert_eq!(own, KEY);
            return (401, json!({ "error": "Unauthorized" }));
        }
        let models = json!({ "object": "list", "data": [{
            "id": if self.kind == Kind::Sglang { &self.path } else { MODEL },
            "object": "model", "root": self.path, "max_model_len": self.start.context,
        }]});
        // A request that was cancelled may still come. The real ones keep it waiting.
        if self.paused && self.kind.verbs().0 == verb && body["token_ids"] != json!([]) {
            return (503, json!({ "detail": "paused" }));
        }
        match (self.kind, method, verb) {
            (_, "GET", "v1/models") => (200, models),
            (Kind::Sglang, "GET", "model_info") => {
                let info = json!({
                    "model_path": self.path, "served_model_name": self.path, "is_generation": true,
                    "weight_version": self.label, "model_type": self.start.model_type,
                    "preferred_sampling_params": null,
                });
                (200, info)
            }
            (Kind::Sglang, "GET", "server_info") => {
                let info = json!({
                    "model_path": self.base, "served_model_name": MODEL, "version": "0.5.23",
                    "enable_deterministic_inference": self.start.seeded, "api_key": null,
                });
                (200, info)
            }
            (Kind::Sglang, "POST", "generate") => self.sglang(body),
            (Kind::Sglang, "POST", "pause_generation") => {
                only(body, &["mode"]);
                assert_eq!(body["mode"], "abort");
                self.paused = true;
                (200, json!({ "message": "Generation paused successfully.", "status": "ok" }))
            }
            (Kind::Sglang, "POST", "update_weights_from_disk") => {
                only(body, &["model_path", "weight_version", "flush_cache"]);
                assert_eq!(body["flush_cache"], true);
                match self.load(body["model_path"].as_str().unwrap()) {
                    Ok(()) => {
                        body["weight_version"].as_str().unwrap().clone_into(&mut self.label);
                        let done = "Succeeded to update model weights.";
                        (200, json!({ "success": true, "message": done, "num_paused_requests": 0 }))
                    }
                    Err(words) => {
                        let words = format!("Failed to get weights iterator: {words}.");
                        (400, json!({ "success": false, "message": words, "num_paused_requests": 0 }))
                    }
                }
            }
            (Kind::Sglang, "POST", "continue_generation") => {
                self.paused = false;
                (200, json!({ "message": "Generation continued successfully.", "status": "ok" }))
            }
            (Kind::Vllm, "GET", "version") => (200, json!({ "version": "0.32.0" })),
            (Kind::Vllm, "POST", "inference/v1/generate") if !self.start.scale_out => {
                error(403, "PermissionDeniedError", "Scale-out endpoints are disabled.")
            }
            (Kind::Vllm, "POST", "inference/v1/generate") => self.vllm(body),
            (Kind::Vllm, ..) if !self.start.dev_mode => (404, json!({ "detail": "Not Found" })),
            (Kind::Vllm, "GET", "weight_info") => (200, json!({ "weight_version": self.label })),
            (Kind::Vllm, "GET", "server_info") => {
                assert!(path.ends_with("?config_format=json"), "{path}");
                let model = json!({ "model": self.path, "logprobs_mode": self.start.logprobs_mode });
                (200, json!({ "vllm_config": { "model_config": model }, "vllm_env": {} }))
            }
            (Kind::Vllm, "POST", "pause") => {
                self.paused = true;
                (200, json!({ "status": "paused" }))
            }
            (Kind::Vllm, "POST", "update_weight_version") => {
                body["new_version"].as_str().unwrap().clone_into(&mut self.label);
                (200, json!({ "success": true, "new_version": self.label }))
            }
            (Kind::Vllm, "POST", "collective_rpc") => {
                assert_eq!(body["method"], "reload_weights");
                match self.load(body["kwargs"]["weights_path"].as_str().unwrap()) {
                    Ok(()) => (200, json!({ "results": [null] })),
                    Err(words) => error(500, "InternalServerError", &words),
                }
            }
            (Kind::Vllm, "POST", "resume") => {
                self.paused = false;
                (200, json!({ "status": "resumed" }))
            }
            _ => (404, json!({ "detail": "Not Found" })),
        }
    }

    /// Loads weights. They stay as they are where that fails.
    fn load(&mut self, folder: &str) -> Result<(), String> {
        for file in ["config.json", "tokenizer.json"] {
            std::fs::metadata(Path::new(folder).join(file)).map_err(|e| format!("{folder}/{file}: {e}"))?;
        }
        self.core = core(Path::new(folder), self.start.context.max(64))?;
        folder.clone_into(&mut self.path);
        self.loads += 1;
        Ok(())
    }

    /// An answer: its tokens, the log-probabilities that are told of them, and whether the limit cut it.
    fn drawn(
        &mut self,
        prompt: &[u32],
        seed: &Value,
        sampling: Sampling,
        params: &Value,
    ) -> (Vec<u32>, Vec<f32>, bool) {
        let seed = self.seeds[&seed.as_u64().unwrap()];
        let one = |sampling| Request { prompt, history: &[], seed, sampling };
        let told = Stops::from(numbers(&params["stop_token_ids"]));
        let texts: Vec<String> = serde_json::from_value(params["stop"].clone()).unwrap_or_default();
        let stops = self.tokens.stops_and(&texts).unwrap();
        assert_eq!(told.tokens(), stops.tokens(), "all that ends an answer by itself");
        // One that draws several tokens at a time finds a text in them once they are there.
        let behind = if self.kind == Kind::Vllm { prompt.len() % 2 } else { 0 };
        let by = if behind > 0 { &told } else { &stops };
        let mut drawn = self.core.answers(&[one(sampling)], by, 8).unwrap().remove(0);
        if let Some(end) = stops.end(&drawn.tokens).filter(|end| end.at() + 1 < drawn.tokens.len()) {
            drawn.tokens.truncate(end.at() + 1 + behind);
            drawn.log_probs.truncate(end.at() + 1 + behind);
            drawn.truncated = false;
        }
        let log_probs = match self.start.tells {
            None => drawn.log_probs,
            Some(_) => drawn.log_probs.iter().map(|l| l * 3.0 - 1.0).collect(),
        };
        (drawn.tokens, log_probs, drawn.truncated)
    }

    fn sglang(&mut self, body: &Value) -> Said {
        // Its contract refuses what it does not know.
        let params = &body["sampling_params"];
        only(body, &["input_ids", "return_logprob", "sampling_params"]);
        let known = ["max_new_tokens", "sampling_seed", "skip_special_tokens", "stop", "stop_token_ids"];
        only(params, &[&known[..], &["temperature", "top_k", "top_p"]].concat());
        assert_eq!(body["return_logprob"], true);
        let prompt = numbers(&body["input_ids"]);
        let longest = params["max_new_tokens"].as_u64().unwrap();
        if prompt.len() + longest as usize > self.start.context {
            return error(400, "BadRequestError", "Requested token count exceeds the model's context");
        }
        let top_k = params["top_k"].as_i64().unwrap();
        assert!(top_k == -1 || top_k > 0, "{top_k}");
        let sampling = sampling(params, top_k.max(0) as usize, longest);
        let (tokens, log_probs, cut) = self.drawn(&prompt, &params["sampling_seed"], sampling, params);
        let finish = match tokens.last() {
            Some(last) if !cut => json!({ "type": "stop", "matched": last }),
            _ => json!({ "type": "length", "length": longest }),
        };
        let scored: Vec<Value> = log_probs.iter().zip(&tokens).map(|(l, t)| json!([l, t, null])).collect();
        let answer = json!({
            "text": "…",
            "output_ids": tokens,
            "meta_info": {
                "id": "9f1c", "finish_reason": finish, "prompt_tokens": prompt.len(),
                "weight_version": self.label, "num_retractions": 0,
                "input_token_logprobs": [], "output_token_logprobs": scored,
                "reasoning_tokens": 0, "completion_tokens": tokens.len(), "cached_tokens": 0,
                "weight_versions": [{ "version": self.label, "start": 0, "end": tokens.len() }],
                "e2e_latency": 0.01,
            },
        });
        (200, answer)
    }

    fn vllm(&mut self, body: &Value) -> Said {
        let params = &body["sampling_params"];
        let prompt = numbers(&body["token_ids"]);
        if prompt.is_empty() {
            return error(400, "BadRequestError", "List should have at least 1 item after validation");
        }
        if body["model"].as_str().is_some_and(|model| model != MODEL) {
            return error(404, "NotFoundError", "The model does not exist.");
        }
        let longest = params["max_tokens"].as_u64().unwrap();
        if prompt.len() + longest as usize > self.start.context {
            return error(400, "BadRequestError", "This model's maximum context length is exceeded");
        }
        assert!(params["ignore_eos"] == true && params["logprobs"] == 0);
        // It looks for texts where it makes text, and refuses them else.
        assert_eq!(params["detokenize"] == true, params["stop"].is_array());
        let sampling = sampling(params, params["top_k"].as_u64().unwrap() as usize, longest);
        let (tokens, log_probs, cut) = self.drawn(&prompt, &params["seed"], sampling, params);
        let (finish, reason) = if cut { ("length", None) } else { ("stop", tokens.last()) };
        let one =
            |(l, t): (&f32, &u32)| json!({ "token_id": t, "logprob": l, "rank": 1, "top_logprobs": [] });
        let content: Vec<Value> = log_probs.iter().zip(&tokens).map(one).collect();
        let answer = json!({
            "request_id": "b0a2", "created": 1, "model": MODEL,
            "usage": { "prompt_tokens": prompt.len(), "completion_tokens": tokens.len(), "total_tokens": 0 },
            "prompt_logprobs": null,
            "choices": [{
                "index": 0, "finish_reason": finish, "stop_reason": reason, "token_ids": tokens,
                "logprobs": { "content": content }, "routed_experts": null,
                "weight_versions": [{ "version": self.label, "start": 0, "end": tokens.len() }],
            }],
        });
        (200, answer)
    }
}

/// That an object has no other keys.
fn only(body: &Value, keys: &[&str]) {
    for key in body.as_object().unwrap().keys() {
        assert!(keys.contains(&key.as_str()), "`{key}` is unknown");
    }
}

fn sampling(params: &Value, top_k: usize, longest: u64) -> Sampling {
    Sampling {
        temperature: params["temperature"].as_f64().unwrap() as f32,
        top_k,
        top_p: params["top_p"].as_f64().unwrap() as f32,
        max_tokens: longest as u32,
        ..Sampling::default()
    }
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect()
}
