//! A judge in a process of its own, which is asked a line of JSON and answers a line:
//! `{"id":1,"gold":["5"],"answer":"It is 5."}`, and then `{"id":1,"correct":true}`, or
//! `{"id":1,"error":"why not"}` where it can't tell. Nothing that it prints reaches our screen but the last
//! line of its standard error, in a sentence about its end.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The longest line that is read from a judge, in bytes.
const LONGEST: u64 = 1 << 20;
/// How long the end of a process and its last words are waited for.
const END: Duration = Duration::from_secs(1);

/// What a judge is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The answers that count as right.
    pub gold: Vec<String>,
    /// The answer to be judged.
    pub answer: String,
}

impl Question {
    /// The line that a judge gets.
    pub fn line(&self, id: u64) -> String {
        serde_json::json!({ "id": id, "gold": self.gold, "answer": self.answer }).to_string()
    }
}

/// Whether an answer is right, or why nobody can tell.
pub type Opinion = Result<bool, String>;

/// What makes a process useless from then on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// There is no such program, or it may not be run.
    #[error("could not be started: {0}")]
    Unstarted(String),
    /// No answer came in time.
    #[error("gave no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// It ended.
    #[error("{0}")]
    Ended(String),
    /// It said something else than an answer to what it was asked. What comes next can't be told apart from
    /// answers to earlier questions.
    #[error("said `{0}`, which does not answer what it was asked")]
    Garbage(String),
}

/// A judge that runs.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    last_words: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
    asked: u64,
}

#[derive(Deserialize)]
struct Reply {
    id: u64,
    correct: Option<bool>,
    error: Option<String>,
}

impl Process {
    /// Starts a program with its arguments.
    pub fn start(words: &[String]) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::Unstarted("its command is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // For judges in Python: what they print comes at once and in one encoding, and the order of their
        // sets is the same in each process.
        command.envs([("PYTHONUNBUFFERED", "1"), ("PYTHONIOENCODING", "utf-8"), ("PYTHONHASHSEED", "0")]);
        command.kill_on_drop(true);
        // In a group of its own: the terminal's Ctrl-C, which pauses a run, is not for it, and what it may
        // have started ends with it.
        #[cfg(unix)]
        command.process_group(0);
        let unstarted = |e: std::io::Error| {
            Failure::Unstarted(match e.kind() {
                std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
                std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => e.to_string(),
            })
        };
        let mut child = command.spawn().map_err(unstarted)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Failure::Unstarted("it has no pipes".to_owned()));
        };
        let last_words = Arc::new(Mutex::new(String::new()));
        let listener = tokio::spawn(listen(stderr, Arc::clone(&last_words)));
        Ok(Self { child, stdin, stdout: BufReader::new(stdout), last_words, listener, asked: 0 })
    }

    /// Whether it runs, as far as can be seen.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it one thing. After a failure it is of no more use.
    pub async fn ask(&mut self, question: &Question, limit: Duration) -> Result<Opinion, Failure> {
        self.asked += 1;
        let line = question.line(self.asked) + "\n";
        let exchange = async {
            self.stdin.write_all(line.as_bytes()).await?;
            self.stdin.flush().await?;
            let mut said = Vec::new();
            (&mut self.stdout).take(LONGEST).read_until(b'\n', &mut said).await?;
            Ok::<_, std::io::Error>(said)
        };
        match timeout(limit, exchange).await {
            Err(_) => Err(Failure::Late(limit)),
            Ok(Ok(said)) if !said.is_empty() => opinion(&said, self.asked),
            // Nothing more to read, or nobody who reads.
            Ok(_) => Err(self.ended().await),
        }
    }

    /// Ends it, and what it started.
    pub async fn end(mut self) {
        self.kill();
        let _ = timeout(END, self.child.kill()).await;
    }

    /// How it ended, in words.
    async fn ended(&mut self) -> Failure {
        let how = match timeout(END, self.child.wait()).await {
            Ok(Ok(status)) => format!("ended with {}", status.to_string().replacen(": ", " ", 1)),
            _ => "closed its input or output".to_owned(),
        };
        // What it started may hold its standard error open.
        let _ = timeout(END, &mut self.listener).await;
        match self.last_words.lock() {
            Ok(said) if !said.is_empty() => Failure::Ended(format!("{how}, and last said `{said}`")),
            _ => Failure::Ended(how),
        }
    }

    fn kill(&self) {
        #[cfg(unix)]
        if let Some(id) = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.listener.abort();
    }
}

/// What a line says about the question of this number.
fn opinion(said: &[u8], asked: u64) -> Result<Opinion, Failure> {
    match serde_json::from_slice(said) {
        Ok(Reply { id, correct: Some(correct), error: None }) if id == asked => Ok(Ok(correct)),
        Ok(Reply { id, correct: None, error: Some(why) }) if id == asked => Ok(Err(words(why.as_bytes()))),
        _ => Err(Failure::Garbage(words(said))),
    }
}

/// Keeps the last line that is not empty. It reads on and on: a full pipe would halt the process.
async fn listen(stderr: ChildStderr, last: Arc<Mutex<String>>) {
    let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
    while let Ok(1..) = (&mut stderr).take(LONGEST).read_until(b'\n', &mut line).await {
        let said = words(&line);
        if let Ok(mut last) = last.lock()
            && !said.is_empty()
        {
            *last = said;
        }
        line.clear();
    }
}

/// A process's words as they fit into a sentence: not too many, and no control characters that a terminal
/// would obey.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).trim().to_owned();
    let shown: String = text
        .chars()
        .take(200)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    if text.chars().nth(200).is_some() { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_the_question_is_an_answer() {
        let said = |line: &str| opinion(line.as_bytes(), 7);
        assert_eq!(said("{\"id\":7,\"correct\":true}\n"), Ok(Ok(true)));
        assert_eq!(said(r#"{"id":7,"correct":false,"error":null,"found":"5"}"#), Ok(Ok(false)));
        assert_eq!(said(r#"{"id":7,"error":"no gold"}"#), Ok(Err("no gold".to_owned())));
        for garbage in [
            "hello",
            "",
            r#"{"id":6,"correct":true}"#,
            r#"{"id":7}"#,
            r#"{"id":7,"correct":1}"#,
            r#"{"id":7,"correct":true,"error":"both"}"#,
            r#"{"correct":true}"#,
            "[7, true]\u{1b}[2J",
        ] {
            assert!(matches!(said(garbage), Err(Failure::Garbage(_))), "{garbage}");
        }
    }

    #[test]
    fn words_are_short_and_obey_no_one() {
        assert_eq!(words(b" a\x1b[2Jb\tc \n"), r"a\u{1b}[2Jb\tc");
        assert_eq!(words("ü".repeat(5000).as_bytes()), "ü".repeat(200) + "…");
        assert_eq!(words(b"\xff"), "\u{fffd}");
    }
}
