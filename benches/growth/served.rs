//! A plan's samples asked of a server, many at a time: the real client, and a server that knows the protocol's
//! words and nothing else. It keeps each promise after a time that is the same for all.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader as Lines, Read as _, Write as _};
use std::net::TcpStream as Plain;
use std::process::ChildStdout;
use std::rc::Rc;
use std::time::{Duration, Instant};

use allot_allocation::{Ledger, Limits, PromptId, Request};
use allot_engine::{
    Engine as _, Interrupt, NativeConfig, OptimizerConfig, Purpose, Sampling, Stops, UpdateConfig,
};
use allot_remote::Remote;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;

/// Tokens of an answer.
const TOKENS: u32 = 200;
/// Rollouts of a group.
const GROUP: u32 = 10;

/// What a client is to ask for.
#[derive(Serialize, Deserialize)]
pub struct Asked {
    /// Rollouts, all of them in one plan and under way at a time.
    pub samples: u32,
    /// The ceiling on connections.
    pub connections: u32,
    /// Where the server is, on this machine.
    pub port: u16,
}

/// What it came to.
#[derive(Serialize, Deserialize)]
pub struct Served {
    /// Seconds on the clock.
    pub wall: f64,
    /// Seconds that the client computed.
    pub cpu: f64,
    /// Connections that the server had open at a time, at most.
    pub opened: u64,
    /// Exchanges.
    pub asked: u64,
    /// Megabytes that the client held at its peak.
    pub memory: f64,
}

/// Samples of a plan, milliseconds until one is done, and the ceiling on connections.
pub fn cases() -> Vec<(u32, u64, u32)> {
    let default = 100;
    vec![
        (100, 0, default),
        (1_000, 0, default),
        (10_000, 0, default),
        (10_000, 0, 1_000),
        (10_000, 0, 10_000),
        (100, 1_000, default),
        (1_000, 1_000, default),
        (10_000, 1_000, default),
        (10_000, 1_000, 1_000),
        (10_000, 1_000, 10_000),
    ]
}

/// Asks for one plan's samples.
pub fn ask(asked: Asked) -> Served {
    let Asked { samples, connections, port } = asked;
    let server = json!({
        "url": format!("http://127.0.0.1:{port}"),
        "server": "tinker",
        "base_model": "none",
        "connections": connections,
    });
    let sampling = Sampling { max_tokens: TOKENS, ..Sampling::default() };
    let config = NativeConfig {
        seed: 1,
        sampling,
        evaluation: vec![sampling],
        stops: Stops::default(),
        rows: samples as usize,
        update: UpdateConfig::default(),
        optimizer: OptimizerConfig::default(),
        updates: 1,
        signals: Vec::new(),
    };
    let shape = allot_models::shape(&allot_models::find("tiny-sums").unwrap()).unwrap();
    let prompts = samples.div_ceil(GROUP);
    let train = vec![vec![1; 100]; prompts as usize];
    let server = serde_json::from_value(server).unwrap();
    let mut remote = Remote::new(&server, config, shape, train, |words| eprintln!("{words}")).unwrap();
    let mut ledger = Ledger::new(Limits {
        rounds: 1,
        step_rollouts: Some(samples),
        run_rollouts: None,
        run_tokens: None,
        longest: TOKENS,
    });
    let order: Vec<Request> = (0..prompts).map(|p| Request::new(PromptId(p), GROUP)).collect();
    let grant = ledger.grant(&order, |_| (0, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (began, computed) = (Instant::now(), clock::process());
    let rollouts =
        match runtime.block_on(remote.sample(grant, Purpose::Training, &mut |_, _| (), &Interrupt::new())) {
            Ok(rollouts) => rollouts,
            Err(error) => {
                eprintln!("{samples} samples, {connections} connections: {error}");
                std::process::exit(1);
            }
        };
    let (wall, cpu) = (began.elapsed().as_secs_f64(), clock::process() - computed);
    ledger.charge(rollouts.iter().flatten().map(|r| (r.prompt, r.position, r.tokens))).unwrap();
    let [opened, asked] = tally(port);
    Served { wall, cpu, opened, asked, memory: clock::memory() }
}

/// What the server counted.
fn tally(port: u16) -> [u64; 2] {
    let mut line = Plain::connect(("127.0.0.1", port)).unwrap();
    line.write_all(b"GET /api/v1/tally HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    line.read_to_string(&mut said).unwrap();
    let (_, body) = said.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// The port that a server says it is at.
pub fn port(said: ChildStdout) -> u16 {
    let mut line = String::new();
    Lines::new(said).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

/// All that the server knows.
struct World {
    think: Duration,
    promises: RefCell<HashMap<u64, (Instant, &'static str)>>,
    open: Cell<u64>,
    most: Cell<u64>,
    asked: Cell<u64>,
    answer: String,
}

/// Serves until its standard input ends.
pub fn serve(think: u64) {
    let sequence = json!({
        "stop_reason": "length",
        "tokens": vec![7; TOKENS as usize],
        "logprobs": vec![-0.7_f32; TOKENS as usize],
    });
    let world = Rc::new(World {
        think: Duration::from_millis(think),
        promises: RefCell::default(),
        open: Cell::new(0),
        most: Cell::new(0),
        asked: Cell::new(0),
        answer: json!({ "sequences": [sequence] }).to_string(),
    });
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let door = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        println!("{}", door.local_addr().unwrap().port());
        loop {
            match door.accept().await {
                Ok((stream, _)) => {
                    let world = Rc::clone(&world);
                    tokio::task::spawn_local(async move {
                        world.open.set(world.open.get() + 1);
                        world.most.set(world.most.get().max(world.open.get()));
                        // Whoever hangs up has what was wanted.
                        let _ = world.speak(stream).await;
                        world.open.set(world.open.get() - 1);
                    });
                }
                // No file is left for another connection: until one ends.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
}

impl World {
    /// Speaks with one client until it hangs up.
    async fn speak(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let verb = line.split([' ', '/']).filter(|word| !word.is_empty()).nth(3).unwrap_or("").to_owned();
            let (mut length, mut last) = (0, false);
            loop {
                line.clear();
                stream.read_line(&mut line).await?;
                let header = line.trim().to_ascii_lowercase();
                match header.split_once(": ") {
                    Some(("content-length", value)) => length = value.parse().unwrap(),
                    Some(("connection", value)) => last = value == "close",
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let said = self.answer(&verb, &body).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            stream.write_all(format!("{head}: {}\r\n\r\n{said}", said.len()).as_bytes()).await?;
            stream.flush().await?;
            if last {
                return Ok(());
            }
        }
    }

    async fn answer(&self, verb: &str, body: &[u8]) -> String {
        if verb == "tally" {
            return json!([self.most.get(), self.asked.get()]).to_string();
        }
        self.asked.set(self.asked.get() + 1);
        let promised = |kind, after: Duration| {
            let id = self.promises.borrow().len() as u64;
            self.promises.borrow_mut().insert(id, (Instant::now() + after, kind));
            json!({ "request_id": id.to_string() }).to_string()
        };
        match verb {
            "create_session" => json!({ "session_id": "session" }).to_string(),
            "create_model" => promised("model", Duration::ZERO),
            "save_weights_for_sampler" => promised("sampler", Duration::ZERO),
            "asample" => promised("sample", self.think),
            "retrieve_future" => {
                let wanted: Value = serde_json::from_slice(body).unwrap();
                let id: u64 = wanted["request_id"].as_str().unwrap().parse().unwrap();
                let (ready, kind) = self.promises.borrow()[&id];
                tokio::time::sleep_until(ready.into()).await;
                match kind {
                    "model" => json!({ "model_id": "model" }).to_string(),
                    "sampler" => json!({ "sampling_session_id": "sampler" }).to_string(),
                    _ => self.answer.clone(),
                }
            }
            _ => json!({}).to_string(),
        }
    }
}
