//! A grader process, which reads and writes one line of JSON for each answer; see [`super::protocol`]. Of
//! its standard error, only the last line is shown, in the message about its end.
//!
//! The process ends with this program, even if this program is killed. A guard, a shell that waits for the
//! end of its input, leads the grader's process group. When this program ends, that input closes and the
//! guard kills the group: also a grader that ignores the end of its input, and processes that it started.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::protocol::{self, Hello, Opinion, Question, words};

/// The longest line read from a grader, in bytes.
const LONGEST: u64 = 1 << 20;
/// How long to wait for the end of a process and its last output.
const END: Duration = Duration::from_secs(1);

/// A failure after which a process can't be used any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The program does not exist or can't be executed.
    #[error("could not be started: {0}")]
    Unstarted(String),
    /// There was no answer within the time limit.
    #[error("gave no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The process ended.
    #[error("{0}")]
    Ended(String),
    /// Its line does not answer the question. Further lines could answer earlier questions.
    #[error("said `{0}`, which does not answer the question")]
    Garbage(String),
}

/// A running grader process.
pub struct Process {
    child: Child,
    #[cfg(unix)]
    guard: Guard,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    last_words: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
    asked: u64,
    /// Its name and version, if it gave them before its first answer.
    hello: Hello,
}

/// Kills a grader's process group when this program has ended.
#[cfg(unix)]
struct Guard {
    shell: Child,
    /// The shell's input. The shell waits for its end.
    _life: Option<ChildStdin>,
}

#[cfg(unix)]
impl Guard {
    /// Starts the shell in its own group, so that Ctrl-C, which pauses a run, does not reach it.
    fn start() -> Result<Self, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", "read -r _; kill -KILL 0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        let failed = |e: std::io::Error| Failure::Unstarted(format!("there is no `sh` to guard it: {e}"));
        let mut shell = command.spawn().map_err(failed)?;
        let life = shell.stdin.take();
        Ok(Self { shell, _life: life })
    }

    /// Returns the group's id until the shell has been waited for.
    fn group(&self) -> Option<rustix::process::Pid> {
        self.shell.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
    }
}

impl Process {
    /// Starts a program with its arguments.
    pub fn start(words: &[String]) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::Unstarted("its command is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // For Python graders: unbuffered output, one encoding, and the same order of sets in each process.
        command.envs([("PYTHONUNBUFFERED", "1"), ("PYTHONIOENCODING", "utf-8"), ("PYTHONHASHSEED", "0")]);
        command.kill_on_drop(true);
        // In the guard's group, so that processes that the grader started end with it.
        #[cfg(unix)]
        let guard = {
            let guard = Guard::start()?;
            command.process_group(guard.group().map_or(0, |group| group.as_raw_nonzero().get()));
            guard
        };
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
        Ok(Self {
            child,
            #[cfg(unix)]
            guard,
            stdin,
            stdout: BufReader::new(stdout),
            last_words,
            listener,
            asked: 0,
            hello: Hello::default(),
        })
    }

    /// Returns its name and version, if it gave them before its first answer.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns whether the process still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks one question. The process can't be used after a failure.
    pub async fn ask(&mut self, question: &Question, limit: Duration) -> Result<Opinion, Failure> {
        let (line, parse) = (|id| question.line(id), |said: &[u8], id| protocol::opinion(said, id));
        self.exchange(line, parse, limit).await
    }

    /// Asks about all answers of a group in one question. The process can't be used after a failure.
    pub async fn ask_group(&mut self, group: &[Question], limit: Duration) -> Result<Vec<Opinion>, Failure> {
        let parse = |said: &[u8], id| protocol::opinions(said, id, group.len());
        self.exchange(|id| Question::lines(group, id), parse, limit).await
    }

    /// Writes a line and reads the answer to it.
    async fn exchange<T>(
        &mut self,
        line: impl FnOnce(u64) -> String,
        parse: impl FnOnce(&[u8], u64) -> Option<T>,
        limit: Duration,
    ) -> Result<T, Failure> {
        self.asked += 1;
        let line = line(self.asked) + "\n";
        let exchange = async {
            self.stdin.write_all(line.as_bytes()).await?;
            self.stdin.flush().await?;
            let mut said = Vec::new();
            (&mut self.stdout).take(LONGEST).read_until(b'\n', &mut said).await?;
            if self.asked == 1
                && let Some(hello) = Hello::read(&said)
            {
                self.hello = hello;
                said.clear();
                (&mut self.stdout).take(LONGEST).read_until(b'\n', &mut said).await?;
            }
            Ok::<_, std::io::Error>(said)
        };
        match timeout(limit, exchange).await {
            Err(_) => Err(Failure::Late(limit)),
            Ok(Ok(said)) if !said.is_empty() => {
                parse(&said, self.asked).ok_or_else(|| Failure::Garbage(words(&said)))
            }
            // It closed its output or its input.
            Ok(_) => Err(self.ended().await),
        }
    }

    /// Ends the process and all processes that it started.
    pub async fn end(mut self) {
        self.kill();
        let _ = timeout(END, self.child.kill()).await;
        #[cfg(unix)]
        let _ = timeout(END, self.guard.shell.kill()).await;
    }

    /// Returns how the process ended, as a failure.
    async fn ended(&mut self) -> Failure {
        let how = match timeout(END, self.child.wait()).await {
            Ok(Ok(status)) => format!("ended with {}", status.to_string().replacen(": ", " ", 1)),
            _ => "closed its input or output".to_owned(),
        };
        // A process that it started may hold its standard error open.
        let _ = timeout(END, &mut self.listener).await;
        match self.last_words.lock() {
            Ok(said) if !said.is_empty() => Failure::Ended(format!("{how}, and last said `{said}`")),
            _ => Failure::Ended(how),
        }
    }

    fn kill(&self) {
        #[cfg(unix)]
        if let Some(group) = self.guard.group() {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.listener.abort();
    }
}

/// Keeps the last line that is not empty. Reads until the end: a full pipe would block the process.
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
