//! Generated Python, or math-verify, in the sandbox, asked by a thread for each core. What an answer comes to depends on nothing but
//! the answer, its problem and the limits: not on which thread it was, how fast, or on what machine.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use allot_error::panics::caught;
use allot_error::{Error, Result};
use allot_files::cache;
use allot_interpreter::build::BUILDS;
use allot_interpreter::math::{Math, WHEELS};
use allot_interpreter::trial::Trial;
use allot_interpreter::{Interpreter, Limits};
use allot_record::sha256;
use allot_settings::{AnyGrader, PythonConfig};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::identity::{Identity, Preflight};
use super::protocol::{Hello, Judgement, Opinion, Question};

/// Where CPython's module is.
pub fn module(config: &PythonConfig) -> Option<PathBuf> {
    config.interpreter.clone().or_else(|| cache("python").map(|folder| folder.join(BUILDS[0].file)))
}

fn open(config: &PythonConfig, grader: AnyGrader) -> Result<Judge> {
    let what = grader.name();
    let there = |path: Option<PathBuf>, needed: &str, key: &str| {
        let path = path.ok_or_else(|| {
            Error::new("there is no folder for what is fetched: neither XDG_CACHE_HOME nor HOME is set")
                .hint(format!("name {needed} by `{key}` in [reward.python]"))
        })?;
        if path.exists() {
            return Ok(path);
        }
        let error = Error::new(format!("there is no {needed} at `{}`", path.display()));
        let error = error.hint(format!("fetch it, once for this machine: allot fetch {what}"));
        Err(error.hint(format!("or name it by `{key}` in [reward.python]")))
    };
    let cache = cache("python");
    let python = there(module(config), "Python", "interpreter")?;
    if grader != AnyGrader::MathVerify {
        return Interpreter::open(&python, cache.as_deref()).map(Judge::Trials);
    }
    let fetched = || cache.as_ref().map(|folder| folder.join("wheels"));
    let wheels = config.wheels.clone().or_else(fetched);
    let first = there(wheels.map(|folder| folder.join(WHEELS[0].file)), "wheel", "wheels")?;
    let folder = first.parent().unwrap_or(&first);
    Math::open(folder, &python, cache.as_deref()).map(Judge::Math)
}

/// What an answer is judged by.
enum Judge {
    /// A problem's tests.
    Trials(Interpreter),
    Math(Math),
}

impl Judge {
    fn told(&self) -> Hello {
        match self {
            Self::Trials(python) => Hello {
                name: Some(python.name().to_owned()),
                version: Some(format!("sha256:{}", python.sha256())),
            },
            Self::Math(math) => {
                let (python, library) = math.hashes();
                Hello { name: Some(math.name()), version: Some(format!("sha256:{python}, sha256:{library}")) }
            }
        }
    }

    fn opinion(&self, question: &Question, limits: Limits) -> Opinion {
        match self {
            Self::Trials(python) => opinion(python, question, limits),
            Self::Math(math) => math.judge(&question.gold, &question.answer, limits).map(Into::into),
        }
    }
}

/// Threads that judge, and what they said before. A small model says the same again and again, and a verdict without a
/// clock is the same each time: a quarter of them and more need no interpreter.
pub struct Sandboxed {
    ask: Sender<(String, Question)>,
    told: UnboundedReceiver<(String, Opinion)>,
    /// What was said, by the sha256 of the answer and what it was judged by.
    known: HashMap<String, Judgement>,
    /// What is being judged.
    open: HashSet<String>,
    /// What was begun.
    begun: Vec<(usize, String)>,
}

/// Verdicts that are known at most, of a hundred bytes or two each.
const KNOWN: usize = 500_000;

impl Sandboxed {
    /// As many threads as there are cores.
    ///
    /// # Errors
    ///
    /// An interpreter that is not there, or is none that is known, and so for packages.
    pub fn new(config: &PythonConfig, grader: AnyGrader) -> Result<Self> {
        let judge = Arc::new(open(config, grader)?);
        let limits = Limits { fuel: config.fuel, memory: config.memory };
        let (ask, asked) = channel();
        let (tell, told) = unbounded_channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            let (asked, tell, judge) = (Arc::clone(&asked), tell.clone(), Arc::clone(&judge));
            std::thread::spawn(move || work(&asked, &tell, &judge, limits));
        }
        Ok(Self { ask, told, known: HashMap::new(), open: HashSet::new(), begun: Vec::new() })
    }

    /// Who judges: the interpreter, and what of this program makes a verdict.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub fn check(config: &PythonConfig, grader: AnyGrader) -> Result<Preflight> {
        let told = open(config, grader)?.told();
        let words = vec![grader.name().to_owned()];
        Ok(Preflight { identity: Identity::of(&words, told)?, words, opinion: Ok(true.into()) })
    }

    /// Begins to judge an answer, unless that is done or being done.
    pub fn begin(&mut self, place: usize, question: Question) {
        let asked = sha256(serde_json::json!([question.gold, question.answer]).to_string());
        self.begun.push((place, asked.clone()));
        // Threads end only when this does.
        if !self.known.contains_key(&asked) && self.open.insert(asked.clone()) {
            let _ = self.ask.send((asked, question));
        }
    }

    /// All that was begun, in any order.
    pub async fn finish(&mut self) -> Vec<(usize, Opinion)> {
        // A fault of the sandbox is no verdict: it is told, and the same answer is judged again when it comes again.
        let mut faults = HashMap::new();
        while !self.open.is_empty() {
            let Some((asked, opinion)) = self.told.recv().await else { break };
            self.open.remove(&asked);
            match opinion {
                Ok(judgement) => drop(self.known.insert(asked, judgement)),
                Err(fault) => drop(faults.insert(asked, fault)),
            }
        }
        let opinion = |(place, asked): (usize, String)| {
            let known = self.known.get(&asked).cloned().map(Ok);
            Some((place, known.or_else(|| faults.get(&asked).cloned().map(Err))?))
        };
        let all = self.begun.drain(..).filter_map(opinion).collect();
        if self.known.len() > KNOWN {
            self.known.clear();
        }
        all
    }
}

fn work(
    asked: &Mutex<Receiver<(String, Question)>>,
    tell: &UnboundedSender<(String, Opinion)>,
    judge: &Judge,
    limits: Limits,
) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((asked, question)) = next else { return };
        // The Wasm engine is not ours: whoever waits for this answer hears of it, whatever happens in it.
        let opinion = caught(|| judge.opinion(&question, limits))
            .unwrap_or_else(|why| Err(format!("the sandbox could not be called: {why}")));
        if tell.send((asked, opinion)).is_err() {
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
