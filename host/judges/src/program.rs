//! A program that runs beside this one and speaks in lines. Of its standard error, only the last line is shown, in the
//! message about its end.
//!
//! It ends with this program, even if this program is killed. A guard, a shell that waits for the end of its input,
//! leads its process group. When this program ends, that input closes and the guard kills the group: also a program
//! that ignores the end of its input, and processes that it started.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::protocol::words;

/// The longest line that is read from its standard error, in bytes.
const LONGEST: u64 = 1 << 20;
/// How long to wait for the end of a program and its last output.
const END: Duration = Duration::from_secs(1);

/// A failure after which a program can't be used any more.
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

/// A running program.
pub struct Program {
    child: Child,
    #[cfg(unix)]
    guard: Guard,
    last_words: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
}

/// What a program reads and writes.
pub type Pipes = (ChildStdin, BufReader<ChildStdout>);

/// Kills a program's process group when this program has ended.
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

impl Program {
    /// Starts a program with its arguments.
    pub fn start(words: &[String]) -> Result<(Self, Pipes), Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::Unstarted("its command is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // For Python: unbuffered output, one encoding, and the same order of sets in each process.
        command.envs([("PYTHONUNBUFFERED", "1"), ("PYTHONIOENCODING", "utf-8"), ("PYTHONHASHSEED", "0")]);
        command.kill_on_drop(true);
        // In the guard's group, so that processes that it started end with it.
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
        let started = Self {
            child,
            #[cfg(unix)]
            guard,
            last_words,
            listener,
        };
        Ok((started, (stdin, BufReader::new(stdout))))
    }

    /// Returns whether the process still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the process and all processes that it started.
    pub async fn end(mut self) {
        self.kill();
        let _ = timeout(END, self.child.kill()).await;
        #[cfg(unix)]
        let _ = timeout(END, self.guard.shell.kill()).await;
    }

    /// Returns how the process ended, as a failure.
    pub async fn ended(&mut self) -> Failure {
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

impl Drop for Program {
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
