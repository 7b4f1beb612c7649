//! math-verify in the sandbox: decides by computer algebra whether an answer equals a gold answer.
//!
//! It uses the same packages and calls as the process grader. Where the process has time limits, this has
//! instruction limits: an answer that exceeds them is wrong, on every machine. A verdict that is certain
//! without them ([`crate::math`]) starts no interpreter, and neither does one that is known: rollouts of one
//! prompt often have the same box.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use allot_allocation::shown;
use allot_base::Result as ErrorResult;
use serde_json::{Value, json};

use crate::protocol::{Judgement, Opinion};
use crate::python::library::{Library, Wheel};
use crate::python::{End, Interpreter, Limits, Session};

/// The pinned wheels.
pub const WHEELS: &[Wheel] = &[
    Wheel {
        package: "math-verify",
        version: "0.8.0",
        file: "math_verify-0.8.0-py3-none-any.whl",
        sha256: "31ca651296d817a9bb3fd58ca1fd0d192dcea709b1e5ecf2d0a4514c16f89087",
    },
    Wheel {
        package: "latex2sympy2_extended",
        version: "1.10.2",
        file: "latex2sympy2_extended-1.10.2-py3-none-any.whl",
        sha256: "f910442c5b02a466c1046f47d05cc5285181068b882399281f30102715337fb7",
    },
    Wheel {
        package: "sympy",
        version: "1.14.0",
        file: "sympy-1.14.0-py3-none-any.whl",
        sha256: "e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5",
    },
    Wheel {
        package: "mpmath",
        version: "1.3.0",
        file: "mpmath-1.3.0-py3-none-any.whl",
        sha256: "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c",
    },
    Wheel {
        package: "antlr4-python3-runtime",
        version: "4.13.2",
        file: "antlr4_python3_runtime-4.13.2-py3-none-any.whl",
        sha256: "fe3835eb8d33daece0e799090eda89719dbccee7aa39ef94eed3818cafa5a7e8",
    },
];

/// The grading code, shared with the process grader and imported as a module.
pub const JUDGE: &str = include_str!("math_verify.py");
/// Imports the grading code and grades a few answers, so that caches are filled.
const SETUP: &str = include_str!("math.py");

/// The most verdicts that are kept: then they are dropped, and asked for again.
const KEPT: usize = 1 << 14;

/// An interpreter that has imported math-verify.
pub struct Math {
    interpreter: Interpreter,
    sha256: String,
    /// Verdicts by gold answers and [what is read in an answer](crate::math::content).
    known: Mutex<HashMap<(Vec<String>, String), bool>>,
}

impl Math {
    /// Opens the wheels in one folder and CPython's module in a file.
    ///
    /// # Errors
    ///
    /// A missing file, or one whose hash differs from the pinned hash.
    pub fn open(wheels: &Path, path: &Path, cache: Option<&Path>) -> ErrorResult<Self> {
        let judge = Value::String(JUDGE.to_owned());
        let library =
            Library::new("math-verify", WHEELS, wheels, &SETUP.replace("JUDGE", &judge.to_string()))?;
        let interpreter = Interpreter::with(&library, path, cache)?;
        Ok(Self { interpreter, sha256: library.sha256().to_owned(), known: Mutex::default() })
    }

    /// Returns the names and versions of the packages and the interpreter.
    pub fn name(&self) -> String {
        let packages: Vec<String> = WHEELS.iter().map(|w| format!("{} {}", w.package, w.version)).collect();
        format!("{}, {}", packages.join(", "), self.interpreter.name())
    }

    /// Returns the hash of the interpreter, and the hash of the library.
    pub fn hashes(&self) -> (&str, &str) {
        (self.interpreter.sha256(), &self.sha256)
    }

    /// Returns whether an answer equals one of these gold answers, and whether that is certain without the packages.
    ///
    /// # Errors
    ///
    /// Why it can't be graded: unreadable gold answers, or a sandbox that failed.
    pub fn judge(&self, gold: &[String], answer: &str, limits: Limits) -> Opinion {
        let certain = crate::math::verdict(gold, answer);
        let correct = match certain {
            Some(correct) => correct,
            None => self.known_or_judged(gold, answer, limits)?,
        };
        Ok(Judgement { certain: Some(certain.is_some()), ..correct.into() })
    }

    /// Drops the verdicts that are known: for measurements of the packages.
    pub fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the result of the packages on this answer, or on one in which they read the same.
    fn known_or_judged(&self, gold: &[String], answer: &str, limits: Limits) -> Result<bool, String> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = crate::math::content(answer).map(|content| (gold.to_vec(), content.to_owned()));
        if let Some(correct) = key.as_ref().and_then(|key| known().get(key).copied()) {
            return Ok(correct);
        }
        let (correct, took) = self.judged(gold, answer, limits)?;
        // The text around a box takes instructions, too: near the limit it could decide.
        if let Some(key) = key.filter(|_| took <= limits.fuel / 2) {
            let mut known = known();
            if known.len() >= KEPT {
                known.clear();
            }
            known.insert(key, correct);
        }
        Ok(correct)
    }

    /// Returns the result of the packages, whether or not it is certain without them, with the number of
    /// instructions used.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::judge`].
    pub fn judged(&self, gold: &[String], answer: &str, limits: Limits) -> Result<(bool, u64), String> {
        let broken = |e: wasmtime::Error| format!("the sandbox failed: {e:#}");
        let mut session = self.interpreter.session(limits).map_err(broken)?;
        // The answer is not loaded yet, so an error here is due to the gold answer.
        let end = session.run(&call("gold", &json!(gold))).map_err(broken)?;
        if end != End::Done {
            return Err(unreadable(&end, &session));
        }
        let end = session.run(&call("answer", &json!(answer))).map_err(broken)?;
        let took = limits.fuel - session.fuel();
        match end {
            End::Done => Ok((session.guest().output.ends_with(b"\ntrue\n"), took)),
            End::Raised => Err(unreadable(&end, &session)),
            End::Exited(_) | End::OutOfFuel | End::Trapped(_) => Ok((false, took)),
        }
    }
}

/// Returns a call with a value as its argument. A JSON string is also a Python string.
fn call(name: &str, value: &Value) -> String {
    format!("_math.{name}(json.loads({}))", Value::String(value.to_string()))
}

/// Returns why gold answers cannot be read.
fn unreadable(end: &End, session: &Session) -> String {
    let words = match end {
        End::Raised => session.last_error(),
        End::OutOfFuel => "the gold answer used up the instructions".to_owned(),
        other => format!("the gold answer ended the process: {other:?}"),
    };
    format!("the grader says: {}", shown::line(&words, shown::LINE))
}
