//! The other side: a process that judges the same questions by what trainers use.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use allot_judges::protocol::Question;
use serde::Deserialize;
use serde_json::json;

use crate::questions::{Batch, python, script};

/// A peer that has judged everything once.
pub struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    pub said: Said,
}

/// What it says of each question, and of a wrong one perhaps why.
#[derive(Deserialize)]
pub struct Said {
    pub verdicts: Vec<Option<bool>>,
    pub why: Vec<String>,
}

impl Peer {
    /// The peer of this name with so many processes. It judges all questions if they are compared, and else those that
    /// are timed.
    pub fn start(name: &str, processes: usize, batch: &Batch, compare: bool) -> Option<Self> {
        let mut command = Command::new(python());
        command.arg(script()).args(["judge", name, &processes.to_string()]).envs(batch.told.clone());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (mut to, from) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let question = |(i, q): (usize, &Question)| json!({ "gold": q.gold, "answer": q.answer, "tokens": batch.tokens.get(i) });
        let questions: Vec<_> = batch.questions.iter().enumerate().map(question).collect();
        let given = json!({ "questions": questions, "timed": batch.timed, "compare": compare });
        writeln!(to, "{given}").ok()?;
        let mut peer =
            Self { child, to: Some(to), from, said: Said { verdicts: Vec::new(), why: Vec::new() } };
        peer.said = serde_json::from_str(&peer.line()?).ok()?;
        Some(peer)
    }

    /// Its verdicts on questions that it is sent as a line of JSON.
    pub fn ask(&mut self, questions: &[Question]) -> Vec<Option<bool>> {
        let asked: Vec<_> = questions.iter().map(|q| json!({ "gold": q.gold, "answer": q.answer })).collect();
        let line = json!({ "list": asked }).to_string() + "\n";
        self.to.as_ref().unwrap().write_all(line.as_bytes()).unwrap();
        serde_json::from_str(&self.line().unwrap()).unwrap()
    }

    /// Verdicts a second, over so many seconds.
    pub fn rate(&mut self, seconds: f64) -> f64 {
        writeln!(self.to.as_ref().unwrap(), "{seconds}").unwrap();
        self.line().unwrap().trim().parse().unwrap()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.from.read_line(&mut line).ok()? > 0).then_some(line)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself, with its processes, when it is asked no more. Killed it would leave them.
        self.to = None;
        let _ = self.child.wait();
    }
}
