//! A peer: the same work in another program's process, which speaks lines of JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use allot_base::{Error, Result};
use allot_engine::model::Precision;
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../../../benches/peers/peer.py");

/// A process of PyTorch and transformers.
pub struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// What it says of its versions.
    pub versions: String,
}

impl Peer {
    /// Starts it with the Python of a virtual environment, on a model's folder. In bf16 it samples with weights in bf16,
    /// and trains weights in float32 under autocast.
    pub fn start(python: &Path, model: &Path, threads: usize, dtype: Precision) -> Result<Self> {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .envs([("HF_HUB_OFFLINE", "1"), ("TOKENIZERS_PARALLELISM", "false")])
            .env("OMP_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| {
                let error = Error::new(format!("could not run `{}`: {e}", python.display()));
                error.hint("name a Python that has torch and transformers: pip install torch transformers")
            })?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("the peer has no pipes"));
        };
        let mut peer = Self { child, to, from: BufReader::new(from), versions: String::new() };
        let about = peer.line(&json!({ "model": model, "threads": threads, "dtype": dtype }))?;
        about["versions"].as_str().unwrap_or_default().clone_into(&mut peer.versions);
        Ok(peer)
    }

    /// Seconds that it takes for this.
    pub fn ask(&mut self, work: &Value) -> Result<f64> {
        let answer = self.line(work)?;
        answer["seconds"].as_f64().ok_or_else(|| Error::new(format!("the peer answered {answer}")))
    }

    fn line(&mut self, asked: &Value) -> Result<Value> {
        let gone = || Error::new("the peer went away; what it said is above");
        writeln!(self.to, "{asked}").and_then(|()| self.to.flush()).map_err(|_| gone())?;
        let mut answer = String::new();
        self.from.read_line(&mut answer).map_err(|_| gone())?;
        serde_json::from_str(&answer).map_err(|_| gone())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
