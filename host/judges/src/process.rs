//! A grader process, which reads and writes one line of JSON for each answer; see [`super::protocol`].

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::program::{Failure, Pipes, Program};
use super::protocol::{self, Hello, Opinion, Question, words};

/// The longest line read from a grader, in bytes.
const LONGEST: u64 = 1 << 20;

/// A running grader process.
pub struct Process {
    program: Program,
    pipes: Pipes,
    asked: u64,
    /// Its name and version, if it gave them before its first answer.
    hello: Hello,
}

impl Process {
    /// Starts a program with its arguments.
    pub fn start(words: &[String]) -> Result<Self, Failure> {
        let (program, pipes) = Program::start(words)?;
        Ok(Self { program, pipes, asked: 0, hello: Hello::default() })
    }

    /// Returns its name and version, if it gave them before its first answer.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns whether the process still runs.
    pub fn runs(&mut self) -> bool {
        self.program.runs()
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
        let (stdin, stdout) = &mut self.pipes;
        let exchange = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await?;
            let mut said = Vec::new();
            (&mut *stdout).take(LONGEST).read_until(b'\n', &mut said).await?;
            if self.asked == 1
                && let Some(hello) = Hello::read(&said)
            {
                self.hello = hello;
                said.clear();
                (&mut *stdout).take(LONGEST).read_until(b'\n', &mut said).await?;
            }
            Ok::<_, std::io::Error>(said)
        };
        match timeout(limit, exchange).await {
            Err(_) => Err(Failure::Late(limit)),
            Ok(Ok(said)) if !said.is_empty() => {
                parse(&said, self.asked).ok_or_else(|| Failure::Garbage(words(&said)))
            }
            // It closed its output or its input.
            Ok(_) => Err(self.program.ended().await),
        }
    }

    /// Ends the process and all processes that it started.
    pub async fn end(self) {
        self.program.end().await;
    }
}
