//! A server that judges in no time, for grader `http` and its peer: an answer is right if it is the gold answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

/// Its address. It serves until the program ends.
pub fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    format!("http://{address}/judge")
}

fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut from = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = line.split_once(':') else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if from.read_exact(&mut body).is_err() {
            return;
        }
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let right = asked["solution_str"] == asked["ground_truth"];
        let said = json!({ "score": f64::from(u8::from(right)), "acc": right }).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        if write!(stream, "{head} {}\r\n\r\n{said}", said.len()).is_err() {
            return;
        }
    }
}
