//! What stands between the program and a server, and passes on what is said; or something else than what was said.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::loopback::{Asked, Door, serve};
use crate::{Chance, mangled};

/// A server's address that stays, whatever stands behind it.
pub struct Proxy {
    pub url: String,
    shared: Arc<Mutex<Shared>>,
    _door: Door,
}

struct Shared {
    /// The address of the server behind it.
    server: String,
    /// What it lies by, and at one in how many answers; not at all where there is none.
    lies: Option<(Chance, usize)>,
    /// How often it did.
    lied: u64,
    /// An answer of before.
    before: Vec<u8>,
}

/// What is passed on.
struct Reply {
    status: u16,
    content: String,
    body: Vec<u8>,
}

/// How it is passed on.
enum Way {
    Whole,
    /// Says that it is so many bytes longer.
    Longer(usize),
    /// Says that it is so many bytes shorter, and says all of it.
    Shorter(usize),
    /// Hangs up after so many bytes of it.
    Cut(usize),
    /// Hangs up at once.
    Nothing,
    /// Says it after a while.
    Late(Duration),
}

impl Proxy {
    /// Without a server yet.
    pub fn open() -> Self {
        let shared = Shared { server: String::new(), lies: None, lied: 0, before: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let inside = shared.clone();
        let door = Door::open(move |stream| {
            serve(stream, |to, asked| pass(&inside, to, asked).unwrap_or(false));
        });
        Self { url: format!("http://{}", door.address), shared, _door: door }
    }

    /// A server stands behind it from now on.
    pub fn stand_before(&self, url: &str) {
        url.trim_start_matches("http://").clone_into(&mut self.shared.lock().unwrap().server);
    }

    /// Lies at one in so many answers from now on.
    pub fn lie(&self, chance: Chance, one_in: usize) {
        let mut shared = self.shared.lock().unwrap();
        (shared.lies, shared.lied) = (Some((chance, one_in)), 0);
    }

    /// Is honest from now on. How often it lied before.
    pub fn be_honest(&self) -> u64 {
        let mut shared = self.shared.lock().unwrap();
        shared.lies = None;
        shared.lied
    }
}

/// One exchange. Whether the line stays open; nothing if a line broke.
fn pass(shared: &Mutex<Shared>, to: &mut TcpStream, asked: &Asked) -> Option<bool> {
    let server = shared.lock().ok()?.server.clone();
    let mut reply = ask(&server, asked)?;
    let mut way = Way::Whole;
    {
        let mut shared = shared.lock().ok()?;
        let Shared { lies, lied, before, .. } = &mut *shared;
        let honest = reply.body.clone();
        if let Some((chance, one_in)) = lies
            && chance.below(*one_in) == 0
        {
            *lied += 1;
            way = lie(&mut reply, before, chance);
        }
        *before = honest;
    }
    let Reply { status, content, body } = reply;
    let said = match way {
        Way::Longer(by) => body.len() + by,
        Way::Shorter(by) => body.len().saturating_sub(by),
        _ => body.len(),
    };
    let body = match way {
        Way::Cut(after) => &body[..after.min(body.len())],
        _ => &body[..],
    };
    match way {
        Way::Nothing => return Some(false),
        Way::Late(time) => std::thread::sleep(time),
        _ => {}
    }
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {content}\r\ncontent-length: {said}\r\n\r\n");
    to.write_all(head.as_bytes()).and_then(|()| to.write_all(body)).ok()?;
    Some(matches!(way, Way::Whole | Way::Late(_)))
}

/// What the server says.
fn ask(server: &str, asked: &Asked) -> Option<Reply> {
    let mut line = TcpStream::connect(server).ok()?;
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {server}\r\n", asked.method, asked.path);
    for name in ["content-type", "x-api-key", "authorization"] {
        if let Some(value) = asked.header(name) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    let _ = write!(head, "content-length: {}\r\n\r\n", asked.body.len());
    line.write_all(head.as_bytes()).and_then(|()| line.write_all(&asked.body)).ok()?;
    let mut reader = BufReader::new(line);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let status = first.split_whitespace().nth(1)?.parse().ok()?;
    let (mut content, mut length) = (String::new(), 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_lowercase().as_str() {
            "content-type" => value.trim().clone_into(&mut content),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Reply { status, content, body })
}

/// What servers say that don't do what is asked, or that are none.
const STATUS: [u16; 14] = [100, 200, 201, 204, 301, 400, 401, 404, 409, 413, 429, 500, 503, 999];

/// Makes something else of a reply.
fn lie(reply: &mut Reply, before: &[u8], chance: &mut Chance) -> Way {
    match chance.below(16) {
        // Mostly one value of it.
        0..=6 => match serde_json::from_slice::<Value>(&reply.body) {
            Ok(mut value) => {
                for _ in 0..*chance.of_these(&[1, 1, 2, 5]) {
                    mangled::change(&mut value, chance);
                }
                reply.body = value.to_string().into_bytes();
            }
            Err(_) => mangled::mangle_bytes(&mut reply.body, chance),
        },
        7 | 8 => mangled::mangle_bytes(&mut reply.body, chance),
        9 => reply.status = *chance.of_these(&STATUS),
        10 => reply.body = before.to_vec(),
        11 => {
            reply.body = match chance.below(5) {
                0 => Vec::new(),
                1 => vec![b'['; 200_000],
                2 => b"<html><body>502 Bad Gateway</body></html>".to_vec(),
                3 => format!("[{}0]", "0,".repeat(500_000)).into_bytes(),
                _ => (0..256).map(|_| chance.next() as u8).collect(),
            };
        }
        12 => {
            reply.content =
                (*chance.of_these(&["", "text/html", "application/x-protobuf", "\u{e9}"])).to_owned();
        }
        13 => return Way::Cut(chance.below(reply.body.len() + 1)),
        14 => {
            return match chance.below(4) {
                0 => Way::Nothing,
                1 => Way::Longer(1),
                by => Way::Shorter(by),
            };
        }
        _ => return Way::Late(Duration::from_millis(chance.below(400) as u64)),
    }
    Way::Whole
}
