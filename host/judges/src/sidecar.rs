//! A process beside this program in which environments run: one for many episodes. Requests and answers are lines of
//! JSON with an id. If the process fails, its episodes are lost, and the next one that begins starts another process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use allot_base::{Error, Result};
use allot_remote::runtime;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

use super::identity::Identity;
use super::program::{Failure, Program};
use super::protocol::{Hello, words};

/// The longest line that is read, in bytes.
const LONGEST: u64 = 16 << 20;
/// How many starts in a row may fail before no more are tried.
const TRIES: u32 = 3;

/// Why no more processes are started, if those before could be.
const NOTHING: &str = "its processes ended before they answered anything";

/// How a sidecar is started.
#[derive(Debug)]
pub(crate) struct SidecarCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its name in messages.
    pub name: String,
    /// Number of requests at a time.
    pub threads: usize,
    /// The time limit of a request.
    pub limit: Duration,
    /// The time limit of a request that begins an episode: it may last as long as the episode.
    pub begin_limit: Duration,
    /// The time limit of a start.
    pub patience: Duration,
    /// The words that identify it: see [`Identity`].
    pub words: Vec<String>,
    /// Its identity when the run began.
    pub known: Option<Identity>,
    /// Why none of its processes can be started any more.
    pub failure: Mutex<Option<String>>,
}

/// A request, from a thread that does not wait for the answer.
pub(crate) struct Call {
    /// The episode's number.
    pub slot: usize,
    pub part: Part,
    /// The object of its line, without the id.
    pub fields: Value,
    /// Is called when the process has it, which may have had to start first.
    pub sent: Option<Box<dyn FnOnce() + Send>>,
    pub take: Take,
}

/// Takes an answer's fields, or why there is no answer.
pub(crate) type Take = Box<dyn FnOnce(std::result::Result<Map<String, Value>, String>) + Send>;

/// What a request is in its episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Begin,
    Turn,
    End,
}

/// A process that is started when an episode begins, and ends with the last copy of this.
#[derive(Clone)]
pub(crate) struct Sidecar {
    calls: UnboundedSender<Call>,
}

/// What a process says when it has started.
#[derive(Deserialize)]
pub(crate) struct Greeting {
    #[serde(flatten)]
    hello: Option<Hello>,
    /// What it offers, in the script's own form.
    #[serde(default)]
    pub tools: Value,
}

/// What a process said when it was checked.
pub(crate) struct Checked {
    pub greeting: Greeting,
    /// Its answers to what it was asked.
    pub answers: Vec<Map<String, Value>>,
}

impl Sidecar {
    /// Returns a sidecar that has not started.
    pub fn new(command: Arc<SidecarCommand>) -> Result<Self> {
        let (calls, asked) = unbounded_channel();
        runtime()?.spawn(async move { Serving { command, running: None, failed: 0 }.serve(asked).await });
        Ok(Self { calls })
    }

    /// Sends a request.
    pub fn call(&self, call: Call) {
        if let Err(unsent) = self.calls.send(call) {
            (unsent.0.take)(Err("its process is gone".to_owned()));
        }
    }
}

impl SidecarCommand {
    /// Returns why none of its processes can be started any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.failed().clone()
    }

    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, asks it these requests one after the other, and ends it. Must not be called from async code.
    pub fn check(&self, hint: &str, asked: &[Value]) -> Result<Checked> {
        let started = runtime()?.block_on(async {
            let (mut running, greeting) = self.start().await?;
            let mut answers = Vec::new();
            for ask in asked {
                answers.push(running.answer(ask, self.patience).await?);
            }
            running.program.end().await;
            Ok::<_, Failure>((greeting, answers))
        });
        let (name, command) = (&self.name, self.command[0].as_str());
        let (greeting, answers) = started.map_err(|failure| {
            let slow = matches!(failure, Failure::Late(_))
                .then_some("raise `environment.process.start_seconds` if it starts slowly");
            Error::new(format!("the environment `{name}` {failure}"))
                .hint(hint.replace("{python}", command))
                .hints(slow)
        })?;
        Ok(Checked { greeting, answers })
    }

    /// Returns the identity of a process that said this when it started.
    pub fn identity(&self, greeting: &Greeting) -> Result<Identity> {
        // Prompts tell of the tools, also of those that imported files define.
        let words = self.words.iter().cloned().chain([greeting.tools.to_string()]).collect::<Vec<_>>();
        Identity::of(&words, greeting.hello.clone().unwrap_or_default())
    }

    async fn start(&self) -> std::result::Result<(Running, Greeting), Failure> {
        let (mut program, (stdin, stdout)) = Program::start(&self.command)?;
        let (write, lines) = (unbounded_channel(), unbounded_channel());
        tokio::spawn(writing(stdin, write.1));
        tokio::spawn(reading(stdout, lines.0));
        let (write, mut lines) = (write.0, lines.1);
        let said = match timeout(self.patience, lines.recv()).await {
            Err(_) => Err(Failure::Late(self.patience)),
            Ok(None) => Err(program.ended().await),
            Ok(Some(said)) => serde_json::from_slice(&said).map_err(|_| Failure::Garbage(words(&said))),
        };
        match said {
            Ok(greeting) => {
                let (under_way, slots) = (HashMap::new(), HashSet::new());
                Ok((Running { program, write, lines, under_way, slots, asked: 0 }, greeting))
            }
            Err(failure) => {
                program.end().await;
                Err(failure)
            }
        }
    }
}

/// A process that runs.
struct Running {
    program: Program,
    write: UnboundedSender<String>,
    lines: UnboundedReceiver<Vec<u8>>,
    /// Requests without an answer so far, by id, with their time limits.
    under_way: HashMap<u64, (Instant, Call)>,
    /// The episodes that it has.
    slots: HashSet<usize>,
    asked: u64,
}

impl Running {
    /// Returns the answer to a request that is the only one.
    async fn answer(
        &mut self,
        ask: &Value,
        patience: Duration,
    ) -> std::result::Result<Map<String, Value>, Failure> {
        let mut ask = ask.clone();
        ask["id"] = 0.into();
        let _ = self.write.send(format!("{ask}\n"));
        let said = match timeout(patience, self.lines.recv()).await {
            Err(_) => return Err(Failure::Late(patience)),
            Ok(None) => return Err(self.program.ended().await),
            Ok(Some(said)) => said,
        };
        serde_json::from_slice(&said).map_err(|_| Failure::Garbage(words(&said)))
    }
}

/// The task that a sidecar's requests go to.
struct Serving {
    command: Arc<SidecarCommand>,
    running: Option<Running>,
    /// Number of starts in a row that failed.
    failed: u32,
}

/// What happens next.
enum Happens {
    Asked(Option<Call>),
    Said(Option<Vec<u8>>),
    Late(u64),
}

impl Serving {
    async fn serve(mut self, mut asked: UnboundedReceiver<Call>) {
        let mut waiting: VecDeque<Call> = VecDeque::new();
        loop {
            while self.is_free()
                && let Some(call) = waiting.pop_front()
            {
                self.send(call).await;
            }
            match self.next(&mut asked).await {
                Happens::Asked(Some(call)) => waiting.push_back(call),
                Happens::Asked(None) => break,
                Happens::Said(said) => self.said(said).await,
                Happens::Late(id) => self.late(id).await,
            }
        }
        if let Some(running) = self.running {
            running.program.end().await;
        }
    }

    fn is_free(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.under_way.len() < self.command.threads)
    }

    async fn next(&mut self, asked: &mut UnboundedReceiver<Call>) -> Happens {
        let Some(running) = &mut self.running else { return Happens::Asked(asked.recv().await) };
        let first = running.under_way.iter().min_by_key(|(_, (limit, _))| *limit);
        let (id, limit) = first.map_or((0, None), |(id, (limit, _))| (*id, Some(*limit)));
        tokio::select! {
            said = running.lines.recv() => Happens::Said(said),
            call = asked.recv() => Happens::Asked(call),
            () = sleep_until(limit.unwrap_or_else(Instant::now)), if limit.is_some() => Happens::Late(id),
        }
    }

    /// Sends a request to the process; one that begins an episode may start it.
    async fn send(&mut self, mut call: Call) {
        if call.part == Part::Begin && self.running.is_none() {
            match self.started().await {
                Ok(running) => self.running = Some(running),
                Err(why) => return (call.take)(Err(why)),
            }
        }
        let there = |running: &&mut Running| call.part == Part::Begin || running.slots.contains(&call.slot);
        let Some(running) = self.running.as_mut().filter(there) else {
            return (call.take)(Err("its process has ended".to_owned()));
        };
        running.asked += 1;
        call.fields["id"] = running.asked.into();
        // A process that has closed its input is found by its output.
        let _ = running.write.send(format!("{}\n", call.fields));
        if let Some(sent) = call.sent.take() {
            sent();
        }
        running.slots.insert(call.slot);
        let limit = if call.part == Part::Begin { self.command.begin_limit } else { self.command.limit };
        running.under_way.insert(running.asked, (Instant::now() + limit, call));
    }

    /// Starts a process. After [`TRIES`] that answered nothing, the run fails.
    async fn started(&mut self) -> std::result::Result<Running, String> {
        if let Some(why) = self.command.failure() {
            return Err(why);
        }
        let started = if self.failed < TRIES {
            Self::tried(Arc::clone(&self.command)).await
        } else {
            Err(NOTHING.to_owned())
        };
        self.failed += 1;
        if let Err(why) = &started
            && self.failed >= TRIES
        {
            let name = &self.command.name;
            let what = format!("the environment `{name}` failed {TRIES} times in a row: {why}");
            *self.command.failed() = Some(what);
        }
        started
    }

    async fn tried(command: Arc<SidecarCommand>) -> std::result::Result<Running, String> {
        let (running, greeting) =
            command.start().await.map_err(|failure| format!("its process {failure}"))?;
        let identity = command.identity(&greeting).map_err(|e| e.what)?;
        if let Some(how) = command.known.as_ref().and_then(|known| identity.apart(known, &command.words)) {
            running.program.end().await;
            return Err(format!("it changed during the run: {how}"));
        }
        Ok(running)
    }

    /// Takes a line of the process; none if it has closed its output.
    async fn said(&mut self, said: Option<Vec<u8>>) {
        let Some(running) = &mut self.running else { return };
        let Some(line) = said else {
            let failure = running.program.ended().await;
            return self.end(None, &format!("its process {failure}")).await;
        };
        let answer = serde_json::from_slice::<Map<String, Value>>(&line).ok().and_then(|mut fields| {
            let id = fields.remove("id")?.as_u64()?;
            Some((running.under_way.remove(&id)?.1, fields))
        });
        let Some((call, mut fields)) = answer else {
            let failure = Failure::Garbage(words(&line));
            return self.end(None, &format!("its process {failure}")).await;
        };
        self.failed = 0;
        let failed = fields.remove("error").map(|why| words(why.as_str().unwrap_or_default().as_bytes()));
        if failed.is_some() || call.part == Part::End {
            running.slots.remove(&call.slot);
        }
        let answer = failed.map_or(Ok(fields), |why| Err(format!("the environment says: {why}")));
        // It renders and tokenizes, for which this task's thread is not there.
        tokio::task::spawn_blocking(move || (call.take)(answer));
    }

    /// Ends the process, as a request has no answer within its time limit.
    async fn late(&mut self, id: u64) {
        let seconds = self.command.limit.as_secs_f64();
        self.end(Some(id), &format!("another episode of its process did not reply within {seconds} s")).await;
    }

    /// Ends the process. Its requests are answered by `why`, the late one by its limit.
    async fn end(&mut self, late: Option<u64>, why: &str) {
        let Some(running) = self.running.take() else { return };
        let mut lost: Vec<_> = running.under_way.into_iter().collect();
        lost.sort_by_key(|(id, _)| *id);
        for (id, (_, call)) in lost {
            let limit = self.command.limit.as_secs_f64();
            let own = || format!("the environment did not reply within {limit} s");
            (call.take)(Err(if late == Some(id) { own() } else { why.to_owned() }));
        }
        running.program.end().await;
    }
}

async fn writing(mut stdin: ChildStdin, mut lines: UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Passes lines on. A line that is too long is cut, which is no JSON.
async fn reading(mut stdout: BufReader<ChildStdout>, lines: UnboundedSender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match (&mut stdout).take(LONGEST).read_until(b'\n', &mut line).await {
            Ok(1..) if lines.send(line).is_ok() => {}
            _ => return,
        }
    }
}
