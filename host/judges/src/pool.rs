//! A pool of judges: answers are spread over processes that do the same, each answer with a time limit. A
//! process that fails takes its answer along, which is then unscorable, and another one is started. Which
//! process judged what makes no difference, and verdicts come in the order of the answers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use allot_error::{Error, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use super::environment::SCRIPT;
use super::identity::Identity;
pub use super::identity::Preflight;
use super::process::{Failure, Process};
use super::protocol::{Opinion, Question};
use super::worker::runtime;
use allot_settings::reward::{FunctionsConfig, JudgeConfig};

/// The judge of grader `math-verify`.
const MATH_VERIFY: &str = allot_interpreter::math::JUDGE;
/// The judge of grader `functions`.
const FUNCTIONS: &str = include_str!("functions.py");
/// Processes that may fail at their greeting one after another, in the middle of a run.
const TRIES: u32 = 3;

/// How judges are started and asked.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it is called in messages.
    pub name: String,
    /// Processes at a time.
    pub processes: usize,
    /// For one answer.
    pub limit: Duration,
    /// To come up and answer the greeting.
    pub patience: Duration,
    /// What a process is asked first, to see that it works. What it thinks of it does not matter.
    pub greeting: Question,
    /// What to do where it does not start.
    pub hint: String,
    /// What tells it from other judges.
    pub words: Vec<String>,
    /// Who it was when the run began. A process that turns out to be another one judges nothing.
    pub known: Option<Identity>,
}

impl Judge {
    /// A user's own.
    pub fn command(config: &JudgeConfig, greeting: Question) -> Self {
        let command = config.command.clone().unwrap_or_default();
        let name = command.join(" ");
        let hint = format!("try it by hand: echo '{}' | {name}", greeting.line(1).replace('\'', r"'\''"));
        Self { words: command.clone(), ..Self::of(config, command, name, greeting, hint) }
    }

    /// The one that ships, for Python's math-verify. The config's command is a Python that has it.
    pub fn math_verify(config: &JudgeConfig, greeting: Question) -> Self {
        let name = format!("{} math_verify.py", config.python().join(" "));
        let hint = "grader `math-verify` needs a Python with math-verify: `pip install math-verify==0.8.0`; \
                    `command` in [reward.judge] names another Python than `python3`";
        Self::in_python(config, ("math_verify.py", MATH_VERIFY), Vec::new(), name, greeting, hint.to_owned())
    }

    /// The one that ships, for reward functions in a file of Python. The config's command is a Python that has what
    /// the file imports.
    pub fn functions(functions: &FunctionsConfig, config: &JudgeConfig, greeting: Question) -> Self {
        let (file, names) = (functions.file.display().to_string(), functions.names.join(", "));
        let name = format!("{names} of {file}");
        let hint = format!(
            "try it by hand: {} {file}; `command` in [reward.judge] names another Python than `python3`",
            config.python().join(" ")
        );
        let messages = u8::from(functions.messages).to_string();
        let told = [file, messages].into_iter().chain(functions.names.iter().cloned()).collect();
        Self::in_python(config, ("functions.py", FUNCTIONS), told, name, greeting, hint)
    }

    /// The one that ships, for environments of these packages. The config's command is a Python that has them.
    pub fn environment(packages: Vec<String>, config: &JudgeConfig, greeting: Question) -> Self {
        let name = format!("{} environment.py {}", config.python().join(" "), packages.join(" "));
        let hint = "grader `environment` needs a Python with the packages that made the problems; `command` in \
                    [reward.judge] names another Python than `python3`";
        let told = ["judge".to_owned()].into_iter().chain(packages).collect();
        Self::in_python(config, ("environment.py", SCRIPT), told, name, greeting, hint.to_owned())
    }

    /// A script that ships, told so much, in the config's Python: which one that is is told by its version.
    fn in_python(
        config: &JudgeConfig,
        (file, source): (&str, &str),
        told: Vec<String>,
        name: String,
        greeting: Question,
        hint: String,
    ) -> Self {
        let script = ["-c".to_owned(), source.to_owned()];
        let command = config.python().into_iter().chain(script).chain(told.iter().cloned()).collect();
        let words = [file.to_owned(), source.to_owned()].into_iter().chain(told).collect();
        Self { words, ..Self::of(config, command, name, greeting, hint) }
    }

    fn of(
        config: &JudgeConfig,
        command: Vec<String>,
        name: String,
        greeting: Question,
        hint: String,
    ) -> Self {
        Self {
            command,
            name,
            processes: config.processes,
            limit: Duration::from_secs_f64(config.seconds),
            patience: Duration::from_secs_f64(config.start_seconds()),
            greeting,
            hint,
            words: Vec::new(),
            known: None,
        }
    }

    /// A process that has answered its greeting, and what it said. A process that fails later fails by the answer
    /// that it is asked about; one that fails here would fail by any.
    async fn start(&self, mut tries: u32) -> Result<(Process, Preflight)> {
        let (process, opinion) = loop {
            match self.preflight().await {
                Ok(preflight) => break preflight,
                Err(failure) if tries <= 1 => return Err(self.unusable(&failure)),
                Err(_) => tries -= 1,
            }
        };
        let identity = Identity::of(&self.words, process.told().clone())?;
        if let Some(how) = self.known.as_ref().and_then(|known| identity.apart(known, &self.words)) {
            let error =
                Error::new(format!("the judge `{}` has changed while the run went on: {how}", self.name));
            return Err(error.hint("put it back as it was when the run began, and go on with --resume"));
        }
        Ok((process, Preflight { identity, words: self.words.clone(), opinion }))
    }

    async fn preflight(&self) -> std::result::Result<(Process, Opinion), Failure> {
        let mut process = Process::start(&self.command)?;
        match process.ask(&self.greeting, self.patience).await {
            Ok(opinion) => Ok((process, opinion)),
            Err(failure) => {
                process.end().await;
                Err(failure)
            }
        }
    }

    fn unusable(&self, failure: &Failure) -> Error {
        let (name, question) = (&self.name, self.greeting.line(1));
        let hint = match failure {
            Failure::Unstarted(_) | Failure::Ended(_) => self.hint.clone(),
            Failure::Late(_) | Failure::Garbage(_) => format!(
                "a judge answers each line like {question} with a line like {}, or {}, and prints nothing else",
                r#"{"id":1,"correct":true}"#, r#"{"id":1,"error":"why not"}"#
            ),
        };
        let slow = matches!(failure, Failure::Late(_))
            .then_some("one that comes up slowly wants a larger `reward.judge.start_seconds`");
        Error::new(format!("the judge `{name}` {failure}")).hint(hint).hints(slow)
    }
}

/// Judges that are asked together. They sit in a thread of their own, so that they judge while the run's thread
/// samples.
pub struct Pool {
    judge: Arc<Judge>,
    bench: Option<Bench>,
    /// What is being asked.
    round: Option<Round>,
}

/// The thread that judges sit in.
struct Bench {
    rounds: UnboundedSender<Sitting>,
    /// None where the system gives no thread: then nobody answers.
    thread: Option<JoinHandle<()>>,
}

/// A round of questions, as it is seen from outside: those with their places go in, and opinions come out when all
/// are answered.
struct Round {
    questions: UnboundedSender<(usize, Question)>,
    opinions: oneshot::Receiver<Result<Vec<(usize, Opinion)>>>,
}

/// The same, as the judges see it.
struct Sitting {
    questions: UnboundedReceiver<(usize, Question)>,
    tell: oneshot::Sender<Result<Vec<(usize, Opinion)>>>,
}

/// What is to be judged, each by whoever comes first.
type Queue = Arc<Mutex<UnboundedReceiver<(usize, Question)>>>;

impl Pool {
    /// A pool. Its processes are started when they are needed.
    pub fn new(judge: Judge) -> Self {
        Self { judge: Arc::new(judge), bench: None, round: None }
    }

    /// Starts one process, greets it, and ends it. It must not be called from async code.
    pub fn check(&self) -> Result<Preflight> {
        runtime()?.block_on(async {
            let (process, preflight) = self.judge.start(1).await?;
            process.end().await;
            Ok(preflight)
        })
    }

    /// What judges say of these, in their order. An error means that no process starts any more.
    pub async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Opinion>> {
        questions.into_iter().enumerate().for_each(|(place, question)| self.begin(place, question));
        let mut opinions = self.finish().await?;
        opinions.sort_by_key(|(place, _)| *place);
        Ok(opinions.into_iter().map(|(_, opinion)| opinion).collect())
    }

    /// Asks one thing, and does not wait for what is said of it.
    pub fn begin(&mut self, place: usize, question: Question) {
        let judge = &self.judge;
        let bench = self.bench.get_or_insert_with(|| {
            let (rounds, sittings) = unbounded_channel();
            let judge = Arc::clone(judge);
            let thread = std::thread::Builder::new().spawn(move || sit_down(&judge, sittings));
            Bench { rounds, thread: thread.ok() }
        });
        let round = self.round.get_or_insert_with(|| {
            let (questions, asked) = unbounded_channel();
            let (tell, opinions) = oneshot::channel();
            // Where nobody sits any more, `finish` says so: nobody tells.
            let _ = bench.rounds.send(Sitting { questions: asked, tell });
            Round { questions, opinions }
        });
        let _ = round.questions.send((place, question));
    }

    /// What judges say of all that was asked, with the places. An error means that no process starts any more.
    pub async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        let Some(Round { questions, opinions }) = self.round.take() else { return Ok(Vec::new()) };
        drop(questions);
        opinions.await.unwrap_or_else(|_| Err(Error::new("judging was broken off")))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.round = None;
        if let Some(Bench { rounds, thread }) = self.bench.take() {
            drop(rounds);
            // Processes end with their thread.
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// The thread of judges: a round after the other, until nobody asks any more.
fn sit_down(judge: &Arc<Judge>, mut sittings: UnboundedReceiver<Sitting>) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            if let Some(sitting) = sittings.blocking_recv() {
                let _ = sitting.tell.send(Err(error));
            }
            return;
        }
    };
    runtime.block_on(async {
        let mut seats = Vec::new();
        while let Some(Sitting { questions, mut tell }) = sittings.recv().await {
            seats.resize_with(judge.processes, || None);
            tokio::select! {
                said = answer(judge, &mut seats, questions) => {
                    let _ = tell.send(said);
                }
                // Whoever asked has gone: judges leave what they are at.
                () = tell.closed() => {}
            }
        }
    });
}

/// Lets judges answer until there are no more questions. A seat is empty until somebody sits down there.
async fn answer(
    judge: &Arc<Judge>,
    seats: &mut Vec<Option<Process>>,
    questions: UnboundedReceiver<(usize, Question)>,
) -> Result<Vec<(usize, Opinion)>> {
    let queue = Arc::new(Mutex::new(questions));
    let mut tasks = JoinSet::new();
    // Who runs already comes first.
    seats.sort_by_key(Option::is_none);
    for seat in seats.drain(..) {
        tasks.spawn(sit(Arc::clone(judge), seat, Arc::clone(&queue)));
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (seat, said) = done.map_err(|e| Error::new(format!("judging was broken off: {e}")))??;
        seats.push(seat);
        all.extend(said);
    }
    Ok(all)
}

/// Lets one process after another answer on a seat, until nothing is left to be asked.
async fn sit(
    judge: Arc<Judge>,
    mut seat: Option<Process>,
    queue: Queue,
) -> Result<(Option<Process>, Vec<(usize, Opinion)>)> {
    let mut said = Vec::new();
    loop {
        let next = queue.lock().await.recv().await;
        let Some((place, question)) = next else { return Ok((seat, said)) };
        // One that ended by itself since has nothing to do with this answer.
        let (mut process, mut fresh) = match seat.take().map(|mut process| (process.runs(), process)) {
            Some((true, process)) => (process, false),
            _ => (judge.start(TRIES).await?.0, true),
        };
        let answered = loop {
            match process.ask(&question, judge.limit).await {
                // Whether it was about to leave after the answer before, or this one ended it, nobody can
                // tell: a fresh process is asked again, and what that does is this answer's own.
                Err(Failure::Ended(_)) if !fresh => {
                    process.end().await;
                    (process, fresh) = (judge.start(TRIES).await?.0, true);
                }
                answered => break answered,
            }
        };
        match answered {
            Ok(opinion) => {
                said.push((place, opinion.map_err(|why| format!("the judge says: {why}"))));
                seat = Some(process);
            }
            Err(failure) => {
                said.push((place, Err(format!("the judge {failure}"))));
                process.end().await;
            }
        }
    }
}
