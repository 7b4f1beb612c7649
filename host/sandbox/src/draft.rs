//! Drafts: policies in Python that Python runs directly, without a component. They are for a policy's
//! author: their calls have no fuel limit, and can reach everything that Python reaches on this machine.
//!
//! The other end is `allot_policy/draft.py` of the Python SDK, which forks a process for each call.

mod process;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Mutex;

use allot_allocation::log::{Level, LogLine};
use allot_allocation::{Past, Plan, Run, View, shown};
use allot_component::{Caps, Description};
use serde::{Deserialize, Serialize};

use crate::calls::{Called, Calls};
use crate::cost::Cost;
use crate::facts::{COUNTS, Facts, MEASURES, Named, Prompts};
use crate::fault::{Fault, Misuse, Refusal};
use crate::restricted_wasi::Other;
use crate::shown::uses_what_it_described;
use crate::v0_3::{with_run, with_run_and_view};

use process::Process;

/// How a draft is run.
pub struct Interpreter {
    /// Python, 3.10 or newer.
    pub python: PathBuf,
    /// The folder of the Python SDK.
    pub sdk: PathBuf,
    /// The project's folder, which has `policy.py`.
    pub folder: PathBuf,
    /// Limits of one call: time and, on Linux, memory. Fuel is not counted.
    pub caps: Caps,
    /// Dropped with the draft: a temporary folder, if the SDK is in one.
    pub held: Option<Box<dyn Any + Send + Sync>>,
}

/// A draft of a policy.
pub struct Draft {
    interpreter: Interpreter,
    // Started by the first call, and again after a call that ended it.
    process: Mutex<Option<Process>>,
}

/// A call, in the SDK's format.
#[derive(Serialize)]
struct Question<R, V> {
    call: &'static str,
    seconds: f64,
    memory: usize,
    run: R,
    view: V,
}

/// A message of the process: an answer, or a question about the data set.
#[derive(Deserialize)]
struct Message {
    reply: Reply,
    #[serde(default)]
    printed: String,
    #[serde(default)]
    log: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Described(Description),
    /// The state follows the message.
    Begun,
    /// The state follows the message.
    Decided(Plan),
    /// The kind of an error, a setting's name, and the reason.
    Refused(String, String, String),
    /// A traceback.
    Failed(String),
    /// The call exceeded its time limit; the function and line where it was interrupted.
    Late(Option<String>),
    /// The call's process ended with this exit code, or by this signal if it is negative.
    Died(i32),
    Asked(Asked),
}

/// A question about the data set: all prompts, those of a range, or those listed.
#[derive(Deserialize)]
struct Asked {
    kind: String,
    name: String,
    between: Option<(u32, u32)>,
    listed: Option<Vec<u32>>,
}

impl Draft {
    /// Returns a draft that this interpreter runs. Starts nothing yet.
    pub fn new(interpreter: Interpreter) -> Self {
        Self { interpreter, process: Mutex::new(None) }
    }

    /// Makes one call, and answers the call's questions about the data set.
    fn call<T>(
        &self,
        question: &impl Serialize,
        state: &[u8],
        mut facts: Option<Facts>,
        answer: impl FnOnce(Reply, Vec<u8>) -> Result<T, Fault>,
    ) -> Called<T> {
        let mut held =
            self.process.lock().map_err(|_| Fault::Engine("an earlier call panicked".to_owned()))?;
        let process = match &mut *held {
            Some(process) => process,
            none => none.insert(Process::start(&self.interpreter)?),
        };
        let asked = process.write(question, state).and_then(|()| {
            loop {
                match process.answer::<Message>()? {
                    (Message { reply: Reply::Asked(asked), .. }, _) => {
                        let told = asked.answer(facts.as_mut(), process);
                        told.map_err(Fault::Misused)??;
                    }
                    answered => return Ok(answered),
                }
            }
        });
        let (message, state) = asked.inspect_err(|_| *held = None)?;
        let log = message.log.into_iter().map(|(level, text)| line(&level, text)).collect();
        let cost = Cost { fuel: 0, memory: 0, log, printed: message.printed };
        let fault = match message.reply {
            Reply::Refused(kind, name, reason) => Fault::Refused(refusal(&kind, &name, &reason)),
            Reply::Failed(said) => trapped("an exception in Python".to_owned(), &said),
            Reply::Late(place) => {
                let place = place.map(|place| shown::line(&place, shown::LINE));
                Fault::OutOfTime { limit: self.interpreter.caps.time, place }
            }
            Reply::Died(code) => trapped(format!("its process ended with code {code}"), &cost.printed),
            reply => return Ok((answer(reply, state)?, cost)),
        };
        Err(fault)
    }

    fn question<R, V>(&self, call: &'static str, run: R, view: V) -> Question<R, V> {
        let Caps { time, memory, .. } = self.interpreter.caps;
        Question { call, seconds: time.as_secs_f64(), memory, run, view }
    }
}

impl Calls for Draft {
    fn describe(&self) -> Called<Description> {
        self.call(&self.question("describe", (), ()), &[], None, |reply, _| match reply {
            Reply::Described(described) => Ok(described),
            _ => Err(unexpected()),
        })
    }

    fn begin(&self, run: &Run) -> Called<Vec<u8>> {
        with_run(run, |run| {
            self.call(&self.question("begin", run, ()), &[], None, |reply, state| match reply {
                Reply::Begun => Ok(state),
                _ => Err(unexpected()),
            })
        })
    }

    /// Ignores `other`: a draft can always read clocks and random bytes.
    fn decide(&self, _other: Option<Other>, run: &Run, state: &[u8], view: &View) -> Called<Plan> {
        let facts = Facts::of(run, view);
        with_run_and_view(run, view, |lent, view| {
            let question = self.question("decide", lent, view);
            self.call(&question, state, Some(facts), |reply, state| match reply {
                Reply::Decided(plan) => {
                    uses_what_it_described(&plan, run).map_err(Fault::Misused)?;
                    Ok(Plan { state, ..plan })
                }
                _ => Err(unexpected()),
            })
        })
    }

    fn instantiate(&self) -> Result<(), Fault> {
        self.describe().map(|_| ())
    }
}

impl Asked {
    /// Writes the answer, with the same values as the contract's `facts`.
    fn answer(self, facts: Option<&mut Facts>, process: &mut Process) -> Result<Result<(), Fault>, Misuse> {
        let Some(facts) = facts else {
            let what = "asked for facts, which only `decide` may do".to_owned();
            return Err(Misuse::new(what, "ask for them in `decide`"));
        };
        let of = match (self.between, self.listed) {
            (Some((first, end)), _) => Prompts::Between(first, end),
            (None, Some(listed)) => Prompts::Listed(listed),
            (None, None) => Prompts::All,
        };
        let name = self.name.as_str();
        Ok(match self.kind.as_str() {
            "counts" => process.write(&facts.numbers(&of, named(&COUNTS, "count", name)?)?, &[]),
            "measures" => process.write(&facts.numbers(&of, named(&MEASURES, "measure", name)?)?, &[]),
            "column" => process.write(&facts.column(name, &of)?, &[]),
            _ => {
                let costs = facts.costs();
                process.write(&(costs.reading, costs.generating, costs.learning), &[])
            }
        })
    }
}

/// Returns the function with this name in a table of facts.
fn named<T>(table: &[Named<T>], kind: &str, name: &str) -> Result<fn(&Past) -> T, Misuse> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).ok_or_else(|| unknown(kind, name))
}

fn unknown(kind: &str, name: &str) -> Misuse {
    Misuse::new(
        format!("asked for the {kind} `{}`, which does not exist", shown::name(name)),
        "see `allot_policy/facts.py`",
    )
}

fn refusal(kind: &str, name: &str, reason: &str) -> Refusal {
    match kind {
        "setting" => Refusal::setting(name, reason),
        "state" => Refusal::state(reason),
        _ => Refusal::other(reason),
    }
}

fn trapped(reason: String, said: &str) -> Fault {
    Fault::Trapped { reason, said: shown::lines(said.trim(), 4 << 10), stack: Vec::new() }
}

fn line(level: &str, text: String) -> LogLine {
    let level = match level {
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" => Level::Warn,
        _ => Level::Error,
    };
    LogLine { level, text: shown::lines(&text, 16 << 10) }
}

fn unexpected() -> Fault {
    Fault::Engine("the draft's process answered a different call from the one that was made".to_owned())
}
