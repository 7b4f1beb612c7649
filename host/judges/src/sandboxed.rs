//! Generated Python, judged by threads that each run it in the sandbox. What an answer comes to depends on nothing but
//! the answer, its problem and the limits: not on which thread it was, how fast, or on what machine.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use allot_error::{Error, Result};
use allot_files::cache;
use allot_interpreter::build::BUILDS;
use allot_interpreter::trial::Trial;
use allot_interpreter::{Interpreter, LEAST_MEMORY, Limits};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::identity::Identity;
use super::pool::Preflight;
use super::protocol::{Hello, Judgement, Opinion, Question};

/// How generated Python is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PythonConfig {
    /// The file with CPython's module; by default the one that `allot fetch python` has fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<PathBuf>,
    /// Wasm instructions for one answer. An answer that needs more is wrong.
    pub fuel: u64,
    /// Bytes of memory for one answer. Python raises a `MemoryError` beyond.
    pub memory: usize,
    /// Whether the reward grows with the share of tests passed, from `wrong` to `right`; an answer is correct if it
    /// passes all of them.
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for PythonConfig {
    fn default() -> Self {
        Self { interpreter: None, fuel: 10_000_000_000, memory: 256 << 20, partial: false }
    }
}

impl PythonConfig {
    /// Where the module is.
    pub fn path(&self) -> Option<PathBuf> {
        self.interpreter.clone().or_else(|| cache("python").map(|folder| folder.join(BUILDS[0].file)))
    }

    /// A key with a value that it can't have, and the rule.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        if self.fuel == 0 || self.fuel > 1 << 50 {
            return Some(("python.fuel", self.fuel as f64, "it is from 1 to 2^50"));
        }
        if !(LEAST_MEMORY..=1 << 32).contains(&self.memory) {
            return Some(("python.memory", self.memory as f64, "it is from 64 MiB, 67108864, to 4 GiB"));
        }
        None
    }

    fn open(&self) -> Result<Interpreter> {
        let path = self.path().ok_or_else(|| {
            Error::new("there is no folder for what is fetched: neither XDG_CACHE_HOME nor HOME is set")
                .hint("name CPython's module by `interpreter` in [reward.python]")
        })?;
        if !path.exists() {
            let error = Error::new(format!("there is no Python at `{}`", path.display()));
            let error = error.hint("fetch it, once for this machine: allot fetch python");
            return Err(error.hint("or name its module by `interpreter` in [reward.python]"));
        }
        Interpreter::open(&path, cache("python").as_deref())
    }
}

/// Threads that judge.
pub struct Sandboxed {
    ask: Sender<(usize, Question)>,
    told: UnboundedReceiver<(usize, Opinion)>,
    /// How many are being judged.
    open: usize,
}

impl Sandboxed {
    /// As many threads as there are cores.
    ///
    /// # Errors
    ///
    /// An interpreter that is not there, or is none that is known.
    pub fn new(config: &PythonConfig) -> Result<Self> {
        let interpreter = Arc::new(config.open()?);
        let limits = Limits { fuel: config.fuel, memory: config.memory };
        let (ask, asked) = channel();
        let (tell, told) = unbounded_channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            let (asked, tell, interpreter) = (Arc::clone(&asked), tell.clone(), Arc::clone(&interpreter));
            std::thread::spawn(move || work(&asked, &tell, &interpreter, limits));
        }
        Ok(Self { ask, told, open: 0 })
    }

    /// Who judges: the interpreter, and what of this program makes a verdict.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub fn check(config: &PythonConfig) -> Result<Preflight> {
        let interpreter = config.open()?;
        let told = Hello {
            name: Some(interpreter.name().to_owned()),
            version: Some(format!("sha256:{}", interpreter.sha256())),
        };
        let words = vec!["python".to_owned()];
        Ok(Preflight { identity: Identity::of(&words, told)?, words, opinion: Ok(true.into()) })
    }

    /// Begins to judge an answer.
    pub fn begin(&mut self, place: usize, question: Question) {
        // Threads end only when this does.
        self.open += usize::from(self.ask.send((place, question)).is_ok());
    }

    /// All that was begun, in any order.
    pub async fn finish(&mut self) -> Vec<(usize, Opinion)> {
        let mut all = Vec::with_capacity(self.open);
        while self.open > 0 {
            let Some(told) = self.told.recv().await else { break };
            all.push(told);
            self.open -= 1;
        }
        all
    }
}

fn work(
    asked: &Mutex<Receiver<(usize, Question)>>,
    tell: &UnboundedSender<(usize, Opinion)>,
    interpreter: &Interpreter,
    limits: Limits,
) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((place, question)) = next else { return };
        if tell.send((place, opinion(interpreter, &question, limits))).is_err() {
            return;
        }
    }
}

/// Of several gold answers, which are trials here, one is enough.
fn opinion(interpreter: &Interpreter, question: &Question, limits: Limits) -> Opinion {
    let mut best: Opinion = Err("it has no tests".to_owned());
    for gold in &question.gold {
        let Ok(trial) = Trial::of(gold) else { continue };
        let outcome = trial.judge(interpreter, &question.answer, limits)?;
        let share = outcome.passed as f32 / outcome.tests.max(1) as f32;
        let judgement =
            Judgement { correct: Some(outcome.is_right()), share: Some(share), ..Judgement::default() };
        if outcome.is_right() {
            return Ok(judgement);
        }
        best = match best {
            Ok(before) if before.share >= judgement.share => Ok(before),
            _ => Ok(judgement),
        };
    }
    best
}
