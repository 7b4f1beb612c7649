//! A pool of judges: answers are spread over processes that do the same, each answer with a time limit. A
//! process that fails takes its answer along, which is then unscorable, and another one is started. Which
//! process judged what makes no difference, and verdicts come in the order of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::process::{Failure, Opinion, Process, Question};
use crate::config::reward::JudgeConfig;
use crate::trouble::{Result, Trouble};

/// The judge of grader `math-verify`.
const MATH_VERIFY: &str = include_str!("math_verify.py");
/// How long a process may take to come up and answer its greeting. Python with sympy on a slow disk takes
/// many seconds.
const PATIENCE: Duration = Duration::from_mins(1);
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
    /// For the greeting.
    pub patience: Duration,
    /// What a process is asked first, to see that it works. What it thinks of it does not matter.
    pub greeting: Question,
    /// What to do where it does not start.
    pub hint: String,
}

impl Judge {
    /// A user's own.
    pub fn command(config: &JudgeConfig, greeting: Question) -> Self {
        let command = config.command.clone().unwrap_or_default();
        let name = command.join(" ");
        let hint = format!("try it by hand: echo '{}' | {name}", greeting.line(1).replace('\'', r"'\''"));
        Self::of(config, command, name, greeting, hint)
    }

    /// The one that ships, for Python's math-verify. The config's command is a Python that has it.
    pub fn math_verify(config: &JudgeConfig, greeting: Question) -> Self {
        let python = config.command.clone().unwrap_or_else(|| vec!["python3".to_owned()]);
        let name = format!("{} math_verify.py", python.join(" "));
        let hint = "grader `math-verify` needs a Python with math-verify: `pip install math-verify==0.8.0`; \
                    `command` in [reward.judge] names another Python than `python3`";
        let command = python.into_iter().chain(["-c".to_owned(), MATH_VERIFY.to_owned()]).collect();
        Self::of(config, command, name, greeting, hint.to_owned())
    }

    fn of(
        config: &JudgeConfig,
        command: Vec<String>,
        name: String,
        greeting: Question,
        hint: String,
    ) -> Self {
        let limit = Duration::from_secs_f64(config.seconds);
        Self {
            command,
            name,
            processes: config.processes,
            limit,
            patience: limit.max(PATIENCE),
            greeting,
            hint,
        }
    }

    /// A process that has answered its greeting. A process that fails later fails by the answer that it
    /// is asked about; one that fails here would fail by any.
    async fn start(&self, mut tries: u32) -> Result<Process> {
        loop {
            match self.greeted().await {
                Ok(process) => return Ok(process),
                Err(failure) if tries <= 1 => return Err(self.unusable(&failure)),
                Err(_) => tries -= 1,
            }
        }
    }

    async fn greeted(&self) -> std::result::Result<Process, Failure> {
        let mut process = Process::start(&self.command)?;
        match process.ask(&self.greeting, self.patience).await {
            Ok(_) => Ok(process),
            Err(failure) => {
                process.end().await;
                Err(failure)
            }
        }
    }

    fn unusable(&self, failure: &Failure) -> Trouble {
        let (name, question) = (&self.name, self.greeting.line(1));
        let hint = match failure {
            Failure::Unstarted(_) | Failure::Ended(_) => self.hint.clone(),
            Failure::Late(_) | Failure::Garbage(_) => format!(
                "a judge answers each line like {question} with a line like {}, or {}, and prints nothing else",
                r#"{"id":1,"correct":true}"#, r#"{"id":1,"error":"why not"}"#
            ),
        };
        Trouble::new(format!("the judge `{name}` {failure}")).hint(hint)
    }
}

/// Judges that are asked together.
pub struct Pool {
    judge: Arc<Judge>,
    /// One for each process: it is empty until somebody sits down there.
    seats: Vec<Option<Process>>,
}

/// What is to be judged, each by whoever comes first.
struct Queue {
    questions: Vec<Question>,
    next: AtomicUsize,
}

impl Pool {
    /// A pool. Its processes are started when they are needed.
    pub fn new(judge: Judge) -> Self {
        let seats = (0..judge.processes).map(|_| None).collect();
        Self { judge: Arc::new(judge), seats }
    }

    /// Starts one process, greets it, and ends it. It must not be called from async code.
    pub fn check(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Trouble::new(format!("no async runtime: {e}")))?;
        runtime.block_on(async {
            self.judge.start(1).await?.end().await;
            Ok(())
        })
    }

    /// What judges say of these, in their order. An error means that no process starts any more.
    pub async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Opinion>> {
        let unasked = || Err("it was not asked about".to_owned());
        let mut opinions: Vec<Opinion> = questions.iter().map(|_| unasked()).collect();
        let busy = self.seats.len().min(questions.len());
        let queue = Arc::new(Queue { questions, next: AtomicUsize::new(0) });
        let mut tasks = JoinSet::new();
        // Who runs already comes first.
        self.seats.sort_by_key(Option::is_none);
        for seat in self.seats.drain(..busy) {
            tasks.spawn(sit(Arc::clone(&self.judge), seat, Arc::clone(&queue)));
        }
        while let Some(done) = tasks.join_next().await {
            let (seat, said) = done.map_err(|e| Trouble::new(format!("judging was broken off: {e}")))??;
            self.seats.push(seat);
            for (place, opinion) in said {
                opinions[place] = opinion;
            }
        }
        Ok(opinions)
    }
}

/// Lets one process after another answer on a seat, until nothing is left to be asked.
async fn sit(
    judge: Arc<Judge>,
    mut seat: Option<Process>,
    queue: Arc<Queue>,
) -> Result<(Option<Process>, Vec<(usize, Opinion)>)> {
    let mut said = Vec::new();
    loop {
        let place = queue.next.fetch_add(1, Ordering::Relaxed);
        let Some(question) = queue.questions.get(place) else { return Ok((seat, said)) };
        // One that ended by itself since has nothing to do with this answer.
        let (mut process, mut fresh) = match seat.take().map(|mut process| (process.runs(), process)) {
            Some((true, process)) => (process, false),
            _ => (judge.start(TRIES).await?, true),
        };
        let answered = loop {
            match process.ask(question, judge.limit).await {
                // Whether it was about to leave after the answer before, or this one ended it, nobody can
                // tell: a fresh process is asked again, and what that does is this answer's own.
                Err(Failure::Ended(_)) if !fresh => {
                    process.end().await;
                    (process, fresh) = (judge.start(TRIES).await?, true);
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
