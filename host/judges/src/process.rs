//! A grader process, which reads and writes lines of JSON; see [`super::protocol`].

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::time::timeout;

use super::output::Output;
use super::program::{Failure, Program};
use super::protocol::{self, Greeting, Lists, Opinion, Question, words};

/// The longest line read from a grader, in bytes, and how much longer it may be for each of several answers.
const LONGEST: (usize, usize) = (1 << 20, 1 << 12);
/// How long a portion should take to judge: long beside what a line costs on its way, and short beside an answer's time
/// limit, so that a process that hangs is noticed in time.
const PORTION: Duration = Duration::from_millis(5);
/// The most answers of a portion, and how many times larger it may be than the one before.
const MOST: (usize, usize) = (256, 4);

/// A running grader process.
pub struct Process {
    program: Program,
    stdin: ChildStdin,
    output: Output,
    /// Number of lines that were written and read.
    asked: u64,
    answered: u64,
    /// What it said before its first answer.
    greeting: Greeting,
    /// How many answers its next portion has.
    portion: usize,
    /// When it had the line that it works on.
    began: Instant,
}

impl Process {
    /// Starts a program with its arguments.
    pub fn start(words: &[String]) -> Result<Self, Failure> {
        let (program, (stdin, stdout)) = Program::start(words)?;
        let output = Output::new(stdout.into_inner());
        let output = output.map_err(|error| Failure::Unstarted(error.to_string()))?;
        let (greeting, began) = (Greeting::default(), Instant::now());
        Ok(Self { program, stdin, output, asked: 0, answered: 0, greeting, portion: 1, began })
    }

    /// Returns what it said before its first answer.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Returns how many answers it should be asked about next in one line: 1 if it takes no lists.
    pub fn portion(&self) -> usize {
        if self.greeting.lists == Lists::No { 1 } else { self.portion }
    }

    /// Returns whether the process still runs.
    pub fn runs(&mut self) -> bool {
        self.program.runs()
    }

    /// Asks one question. The process can't be used after a failure.
    pub async fn ask(&mut self, question: &Question, limit: Duration) -> Result<Opinion, Failure> {
        let line = question.line(self.asked + 1) + "\n";
        self.began = Instant::now();
        self.exchange(Some(line.into_bytes()), limit, LONGEST.0, protocol::opinion).await
    }

    /// Asks about `count` answers that are compared, in one line. The process can't be used after a failure.
    pub async fn ask_group<'q>(
        &mut self,
        group: impl Iterator<Item = &'q Question>,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Opinion>, Failure> {
        let line = protocol::group(self.asked + 1, group) + "\n";
        self.began = Instant::now();
        let said = self.opinions(Some(line.into_bytes()), count, limit).await?;
        Ok(said.unwrap_or_else(|why| vec![Err(why); count]))
    }

    /// Sends a portion of answers. The process can't be used after a failure.
    pub async fn send<'q>(
        &mut self,
        portion: impl Iterator<Item = &'q Question>,
        limit: Duration,
    ) -> Result<(), Failure> {
        self.asked += 1;
        let line = protocol::list(self.asked, self.greeting.lists, portion);
        self.began = Instant::now();
        match timeout(limit, write(&mut self.stdin, line)).await {
            Err(_) => Err(Failure::Late(limit)),
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.program.ended().await),
        }
    }

    /// Blocks this thread until it has answered the portion that was sent, but no longer than a portion should take.
    pub fn linger(&mut self, limit: Duration) {
        // An error is the next read's, too.
        let _ = self.output.linger(PORTION.min(limit));
    }

    /// Returns the opinions on the portion of `count` answers that was sent first, or why it has none on the whole of it.
    /// Meanwhile it sends the next one, if there is one. The process can't be used after a failure.
    pub async fn advance<'q>(
        &mut self,
        next: Option<impl Iterator<Item = &'q Question>>,
        count: usize,
        limit: Duration,
    ) -> Result<Result<Vec<Opinion>, String>, Failure> {
        let line = next.map(|next| protocol::list(self.asked + 1, self.greeting.lists, next));
        let opinions = if count == 1 {
            Ok(vec![self.exchange(line, limit, LONGEST.0, protocol::opinion).await?])
        } else {
            self.opinions(line, count, limit).await?
        };
        let fit = PORTION.as_secs_f64() * count as f64 / self.began.elapsed().as_secs_f64().max(1e-9);
        self.portion = (fit as usize).clamp(1, MOST.0.min(MOST.1 * self.portion));
        self.began = Instant::now();
        Ok(opinions)
    }

    async fn opinions(
        &mut self,
        line: Option<Vec<u8>>,
        count: usize,
        limit: Duration,
    ) -> Result<Result<Vec<Opinion>, String>, Failure> {
        let longest = LONGEST.0 + LONGEST.1 * count;
        self.exchange(line, limit, longest, |said, id| protocol::opinions(said, id, count)).await
    }

    /// Reads the answer to the first line that has none, and meanwhile writes one. The limit counts since [`Self::began`].
    async fn exchange<T>(
        &mut self,
        line: Option<Vec<u8>>,
        limit: Duration,
        longest: usize,
        parse: impl FnOnce(&[u8], u64) -> Option<T>,
    ) -> Result<T, Failure> {
        self.asked += u64::from(line.is_some());
        self.answered += 1;
        let (stdin, output) = (&mut self.stdin, &mut self.output);
        let left = limit.saturating_sub(self.began.elapsed());
        let writing = async {
            match line {
                Some(line) => write(stdin, line).await,
                None => Ok(()),
            }
        };
        let reading = async {
            let said = output.line(longest).await?;
            if self.answered == 1
                && let Some(greeting) = Greeting::read(&said)
            {
                self.greeting = greeting;
                return output.line(longest).await;
            }
            Ok(said)
        };
        match timeout(left, async { tokio::try_join!(writing, reading) }).await {
            Err(_) => Err(Failure::Late(limit)),
            Ok(Ok(((), said))) if !said.is_empty() => {
                parse(&said, self.answered).ok_or_else(|| Failure::Garbage(words(&said)))
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

async fn write(stdin: &mut ChildStdin, line: Vec<u8>) -> std::io::Result<()> {
    stdin.write_all(&line).await?;
    stdin.flush().await
}
