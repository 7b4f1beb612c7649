//! Generated Python or math-verify in the sandbox, on all cores. An opinion depends only on the answer, its
//! problem and the limits, not on the thread, the time or the machine.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::python::build::BUILDS;
use crate::python::math::{Math, WHEELS};
use crate::python::trial::Trial;
use crate::python::{Interpreter, Limits};
use allot_base::{Error, Result, cache, panics::caught};
use allot_record::sha256;
use allot_settings::{AnyGrader, PythonConfig};

use super::identity::{GraderPreflight, Identity};
use super::protocol::{Hello, Judgement, Opinion, Question};
use super::workers::{Places, Workers};

/// Returns the path of CPython's module.
pub fn module(config: &PythonConfig) -> Option<PathBuf> {
    config.interpreter.clone().or_else(|| cache("python").map(|folder| folder.join(BUILDS[0].file)))
}

fn open(config: &PythonConfig, grader: AnyGrader) -> Result<Guest> {
    let what = grader.name();
    let there = |path: Option<PathBuf>, needed: &str, key: &str| {
        let path = path.ok_or_else(|| {
            Error::new("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
                .hint(format!("name {needed} by `{key}` in [reward.python]"))
        })?;
        if path.exists() {
            return Ok(path);
        }
        let error = Error::new(format!("there is no {needed} at `{}`", path.display()));
        let error = error.hint(format!("run, once on this machine: allot fetch {what}"));
        Err(error.hint(format!("or name it by `{key}` in [reward.python]")))
    };
    let cache = cache("python");
    let python = there(module(config), "Python", "interpreter")?;
    if grader != AnyGrader::MathVerify {
        return Interpreter::open(&python, cache.as_deref()).map(Guest::Trials);
    }
    let fetched = || cache.as_ref().map(|folder| folder.join("wheels"));
    let wheels = config.wheels.clone().or_else(fetched);
    let first = there(wheels.map(|folder| folder.join(WHEELS[0].file)), "wheel", "wheels")?;
    let folder = first.parent().unwrap_or(&first);
    Math::open(folder, &python, cache.as_deref()).map(Guest::Math)
}

/// The program in the sandbox.
enum Guest {
    /// Runs a problem's tests.
    Trials(Interpreter),
    Math(Math),
}

impl Guest {
    fn hello(&self) -> Hello {
        let (name, version) = match self {
            Self::Trials(python) => (python.name().to_owned(), format!("sha256:{}", python.sha256())),
            Self::Math(math) => {
                let (python, library) = math.hashes();
                (math.name(), format!("sha256:{python}, sha256:{library}"))
            }
        };
        Hello { name: Some(name), version: Some(version) }
    }

    fn opinion(&self, question: &Question, limits: Limits) -> Opinion {
        match self {
            Self::Trials(python) => opinion(python, question, limits),
            Self::Math(math) => math.judge(&question.gold, &question.answer, limits),
        }
    }
}

/// A grader in the sandbox, with its earlier verdicts. A small model repeats answers often, and a verdict
/// is reproducible: at least a quarter of the answers need no interpreter.
pub struct Sandboxed {
    workers: Workers<(String, Question), (String, Opinion)>,
    /// Verdicts by the sha256 of the answer and of its gold answers.
    known: HashMap<String, Judgement>,
    /// The places of the round's answers.
    places: Places,
}

/// The most stored verdicts, of one or two hundred bytes each.
const KNOWN: usize = 500_000;

impl Sandboxed {
    /// Returns a grader that grades as many answers concurrently as there are cores.
    ///
    /// # Errors
    ///
    /// An interpreter or packages that are missing or unknown.
    pub fn new(config: &PythonConfig, grader: AnyGrader) -> Result<Self> {
        let guest = open(config, grader)?;
        let limits = Limits { fuel: config.fuel, memory: config.memory };
        let workers = Workers::computing(move |(key, question): (String, Question)| {
            // A panic in the Wasm engine is turned into an opinion.
            let opinion = caught(|| guest.opinion(&question, limits));
            (key, opinion.unwrap_or_else(|why| Err(format!("the sandbox could not be called: {why}"))))
        });
        Ok(Self { workers, known: HashMap::new(), places: Places::default() })
    }

    /// Returns the identity: the interpreter, and the parts of this program that affect verdicts.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::new`].
    pub fn check(config: &PythonConfig, grader: AnyGrader) -> Result<GraderPreflight> {
        let hello = open(config, grader)?.hello();
        let words = vec![grader.name().to_owned()];
        Ok(GraderPreflight {
            identity: Identity::of(&words, hello)?,
            words,
            opinion: Ok(true.into()),
            compares: false,
        })
    }

    /// Starts grading an answer, unless its verdict is known or the round already asks for it.
    pub fn begin(&mut self, place: usize, question: Question) {
        let key = sha256(serde_json::json!([question.gold, question.answer]).to_string());
        if self.places.add(&key, place) && !self.known.contains_key(&key) {
            self.workers.begin((key, question));
        }
    }

    /// Returns the opinions on all answers since the last call, with their places, in any order.
    ///
    /// # Errors
    ///
    /// The system provides no thread.
    pub async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        let places = std::mem::take(&mut self.places);
        // A failure of the sandbox is not stored: the same answer is graded again in another round.
        let mut failures = HashMap::new();
        for (key, opinion) in self.workers.finish().await? {
            match opinion {
                Ok(judgement) => drop(self.known.insert(key, judgement)),
                Err(why) => drop(failures.insert(key, why)),
            }
        }
        let all = places.opinions(|key| {
            let known = self.known.get(key).cloned().map(Ok);
            known.or_else(|| failures.get(key).cloned().map(Err))
        });
        if self.known.len() > KNOWN {
            self.known.clear();
        }
        Ok(all)
    }
}

/// Grades by all gold answers, which are trials here. Passing one of them is enough.
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
