//! What the servers of tests on the loopback have in common: a door, the exchanges that come in by it, and what they
//! do wrong.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod runs;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allot_allocation::{PromptId, seed};

/// A door on the loopback, open until it is dropped.
pub struct Door {
    pub address: String,
    closed: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Door {
    /// Each line that comes in by it is served in a thread of its own.
    pub fn open(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (closed, serve) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let inside = closed.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if inside.load(Ordering::SeqCst) {
                    return;
                }
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, closed, thread: Some(thread) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// What came in one exchange.
pub struct Asked {
    pub method: String,
    pub path: String,
    /// By their names in small letters.
    headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn read(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return None;
            }
            let Some((name, value)) = header.trim().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        Some(Self { method, path, headers, body })
    }
}

/// Speaks with one client until one of both hangs up. `answer` says whether the line stays open.
pub fn serve(mut stream: TcpStream, answer: impl Fn(&mut TcpStream, &Asked) -> bool) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(asked) = Asked::read(&mut reader) {
        if !answer(&mut stream, &asked) {
            return;
        }
    }
}

/// Says this, or the first half of it and no more. Whether the line stays open.
pub fn say(to: &mut TcpStream, status: u16, content: &str, text: &[u8], cut: bool) -> bool {
    let length = text.len();
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {content}\r\ncontent-length: {length}\r\n\r\n");
    let text = if cut { &text[..length / 2] } else { text };
    to.write_all(head.as_bytes()).and_then(|()| to.write_all(text)).is_ok() && !cut
}

/// What a server does wrong, at the how-many-eth exchange of a verb and for how many of them.
pub struct Trick<What> {
    pub verb: &'static str,
    pub at: usize,
    pub times: usize,
    pub what: What,
}

/// One that is played once.
pub fn trick<What>(verb: &'static str, at: usize, what: What) -> Trick<What> {
    Trick { verb, at, times: 1, what }
}

/// How often each verb was spoken, and what goes wrong at which of them.
pub struct Tricks<What> {
    asked: BTreeMap<String, usize>,
    tricks: Vec<Trick<What>>,
}

impl<What> Tricks<What> {
    pub fn none() -> Self {
        Self { asked: BTreeMap::new(), tricks: Vec::new() }
    }

    /// Does this from now on, counted from now.
    pub fn play(&mut self, tricks: Vec<Trick<What>>) {
        *self = Self { tricks, ..Self::none() };
    }

    /// How often a verb was spoken since.
    pub fn asked(&self, verb: &str) -> usize {
        self.asked.get(verb).copied().unwrap_or(0)
    }

    /// A verb is spoken: what is done wrong, if anything is.
    pub fn next(&mut self, verb: &str) -> Option<&What> {
        let count = self.asked.entry(verb.to_owned()).or_default();
        *count += 1;
        let count = *count;
        let trick = self.tricks.iter().find(|t| t.verb == verb && (t.at..t.at + t.times).contains(&count))?;
        Some(&trick.what)
    }
}

/// Seeds as they come to a server, to those that the engine on this machine has for the same rollouts.
pub fn seeds() -> HashMap<u64, u64> {
    let mut seeds = HashMap::new();
    for (prompt, version, position) in
        (0..45).flat_map(|p| (0..6).flat_map(move |v| (0..64).map(move |i| (p, v, i))))
    {
        let whole = seed::rollout(1, PromptId(prompt), version, position);
        assert_eq!(seeds.insert(whole >> 33, whole), None, "two rollouts have one seed");
    }
    // Of later turns so many are told apart that a few have a seed on the wire in common.
    let rollouts: Vec<u64> = seeds.values().copied().collect();
    for turn in rollouts.iter().flat_map(|whole| (1..8).map(|turn| seed::turn(*whole, turn))) {
        seeds.entry(turn >> 33).or_insert(turn);
    }
    seeds
}
