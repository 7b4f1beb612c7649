//! math-verify in the sandbox: whether an answer equals a gold answer, by computer algebra.
//!
//! The same packages and the same calls as the grader that is a process. What that does with clocks, this does with
//! instructions: an answer that needs more of them than it may is wrong, on every machine.

use std::path::Path;

use allot_allocation::shown;
use allot_base::Result as ErrorResult;
use serde_json::{Value, json};

use crate::python::library::{Library, Wheel};
use crate::python::{End, Interpreter, Limits, Session};

/// What it is made of.
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

/// Reads and compares, as the process does; it is imported under this name.
pub const JUDGE: &str = include_str!("math_verify.py");
/// Imports it, and reads and compares a few answers, so that what is made at a first call is there.
const SETUP: &str = include_str!("math.py");

/// math-verify, imported.
pub struct Math {
    interpreter: Interpreter,
    sha256: String,
}

impl Math {
    /// Opens it: wheels in one folder, CPython's module in a file.
    ///
    /// # Errors
    ///
    /// What is missing, or is not what is pinned.
    pub fn open(wheels: &Path, path: &Path, cache: Option<&Path>) -> ErrorResult<Self> {
        let judge = Value::String(JUDGE.to_owned());
        let library =
            Library::new("math-verify", WHEELS, wheels, &SETUP.replace("JUDGE", &judge.to_string()))?;
        let interpreter = Interpreter::with(&library, path, cache)?;
        Ok(Self { interpreter, sha256: library.sha256().to_owned() })
    }

    /// The interpreter's name and the packages.
    pub fn name(&self) -> String {
        let packages: Vec<String> = WHEELS.iter().map(|w| format!("{} {}", w.package, w.version)).collect();
        format!("{}, {}", packages.join(", "), self.interpreter.name())
    }

    /// The hash of the interpreter, and that of all else.
    pub fn hashes(&self) -> (&str, &str) {
        (self.interpreter.sha256(), &self.sha256)
    }

    /// Whether an answer equals one of these gold answers.
    ///
    /// # Errors
    ///
    /// Why it could not be judged: gold answers that cannot be read, or a sandbox that failed.
    pub fn judge(&self, gold: &[String], answer: &str, limits: Limits) -> Result<bool, String> {
        self.judged(gold, answer, limits).map(|(correct, _)| correct)
    }

    /// The same, with the instructions that it took.
    ///
    /// # Errors
    ///
    /// As for [`Self::judge`].
    pub fn judged(&self, gold: &[String], answer: &str, limits: Limits) -> Result<(bool, u64), String> {
        let broken = |e: wasmtime::Error| format!("the sandbox failed: {e:#}");
        let mut session = self.interpreter.session(limits).map_err(broken)?;
        // Nothing of the answer is there yet: what goes wrong is the gold answer's.
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

/// A call with a value, whose text is one in Python's words as well as in JSON's.
fn call(name: &str, value: &Value) -> String {
    format!("_math.{name}(json.loads({}))", Value::String(value.to_string()))
}

/// Why gold answers cannot be read.
fn unreadable(end: &End, session: &Session) -> String {
    let words = match end {
        End::Raised => session.last_error(),
        End::OutOfFuel => "the gold answer used up the instructions".to_owned(),
        other => format!("the gold answer ended the process: {other:?}"),
    };
    format!("the grader says: {}", shown::line(&words, shown::LINE))
}
