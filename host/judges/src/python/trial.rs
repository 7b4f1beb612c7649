//! A problem's trial (its tests, or inputs with expected outputs), and the outcome of an answer.

use allot_allocation::shown;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::python::{End, Interpreter, Limits, Session, text};

/// The tests of a problem, read from its gold answer: JSON in the formats of HumanEval, MBPP, APPS and
/// verl's data. Other fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// Code before the answer: HumanEval's beginning of a function, with its imports.
    pub prompt: String,
    /// HumanEval's tests: code that defines `check`.
    pub test: Option<String>,
    /// The function that `check` is called with.
    pub entry_point: Option<String>,
    /// MBPP's tests: statements that must hold.
    pub test_list: Vec<String>,
    /// Code that runs before the tests.
    pub test_setup_code: String,
    /// Imports that run before `test_setup_code`.
    pub test_imports: Vec<String>,
    /// APPS's inputs: texts for the standard input, or with `fn_name` the arguments of a call.
    pub inputs: Vec<Value>,
    /// The expected outputs: texts on the standard output, or with `fn_name` values.
    pub outputs: Vec<Value>,
    /// The function that is called, or the method of a class `Solution`.
    pub fn_name: Option<String>,
    /// The relative tolerance for decimal numbers. The default is [`text::TOLERANCE`] for printed numbers,
    /// and 0 for returned ones.
    pub tolerance: Option<f64>,
    /// The original gold answer, which keeps numbers of any size.
    #[serde(skip)]
    gold: String,
}

/// The outcome of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of passed tests.
    pub passed: usize,
    /// Number of tests.
    pub tests: usize,
    /// Why it stopped before the last test, if it did.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Returns whether the answer passed all tests.
    pub fn is_right(&self) -> bool {
        self.passed == self.tests
    }
}

impl Trial {
    /// Parses the trial in a gold answer.
    ///
    /// # Errors
    ///
    /// What the gold answer lacks, as a clause that follows its name.
    pub fn of(gold: &str) -> Result<Self, String> {
        let mut trial: Self =
            serde_json::from_str(gold).map_err(|e| format!("is not a JSON object with tests: {e}"))?;
        gold.clone_into(&mut trial.gold);
        let kinds = [trial.test.is_some(), !trial.test_list.is_empty(), !trial.inputs.is_empty()];
        if kinds.iter().filter(|kind| **kind).count() != 1 {
            return Err("must have exactly one of `test`, `test_list` and `inputs`".to_owned());
        }
        if trial.test.is_some() && trial.entry_point.is_none() {
            return Err("has `test` but no `entry_point`".to_owned());
        }
        if trial.inputs.len() != trial.outputs.len() {
            let (inputs, outputs) = (trial.inputs.len(), trial.outputs.len());
            return Err(format!("has {inputs} inputs and {outputs} outputs"));
        }
        if let Some(tolerance) = trial.tolerance.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(format!("has the `tolerance` {tolerance}; expected 0 to 1"));
        }
        Ok(trial)
    }

    /// Grades an answer. The limits apply to the whole trial.
    ///
    /// # Errors
    ///
    /// Why the answer can't be graded. An answer can't cause this.
    pub fn judge(&self, interpreter: &Interpreter, answer: &str, limits: Limits) -> Result<Outcome, String> {
        let program = format!("{}{}\n", self.prompt, text::code(answer));
        let broken = |e: wasmtime::Error| format!("the sandbox failed: {e:#}");
        if self.inputs.is_empty() || self.fn_name.is_some() {
            self.by_tests(interpreter, &program, limits).map_err(broken)?
        } else {
            self.by_outputs(interpreter, &program, limits).map_err(broken)
        }
    }

    /// Returns the call that runs the tests in their interpreter, and the number of tests. A JSON string is
    /// also a Python string.
    fn tests(&self) -> (String, usize) {
        let quoted = |value: &str| Value::String(value.to_owned()).to_string();
        if self.fn_name.is_some() {
            return (format!("_allot.calls({})", quoted(&self.gold)), self.inputs.len());
        }
        let (setup, tests, names) = if let (Some(test), Some(name)) = (&self.test, &self.entry_point) {
            (self.prompt.clone(), vec![format!("{test}\n\ncheck({name})\n")], vec![name])
        } else {
            let setup = format!("{}\n{}\n", self.test_imports.join("\n"), self.test_setup_code);
            (setup, self.test_list.clone(), Vec::new())
        };
        (
            format!("_allot.test(*json.loads({}))", quoted(&json!([setup, tests, names]).to_string())),
            tests.len(),
        )
    }

    /// Runs an answer, after the imports of the benchmark's own harness.
    fn begin(&self, session: &mut Session, program: &str) -> wasmtime::Result<End> {
        let ready = if self.inputs.is_empty() { End::Done } else { session.run("_allot.harness()")? };
        if ready == End::Done { session.run(program) } else { Ok(ready) }
    }

    /// Grades by tests in a separate interpreter, with the same limits as the answer's interpreter.
    fn by_tests(
        &self,
        interpreter: &Interpreter,
        program: &str,
        limits: Limits,
    ) -> wasmtime::Result<Result<Outcome, String>> {
        let (run, tests) = self.tests();
        let mut outcome = Outcome { passed: 0, tests, stopped: None };
        let mut answers = interpreter.session(limits)?;
        let begun = self.begin(&mut answers, program)?;
        if begun != End::Done {
            outcome.stopped = Some(reason(&begun, &answers));
            return Ok(Ok(outcome));
        }
        let mut judge = interpreter.session(limits)?;
        let mut gone = false;
        judge.guest().answer = Some(Box::new(move |request| {
            let reply = if gone { None } else { reply(&mut answers, request) };
            gone = reply.is_none();
            reply.unwrap_or_else(|| b"null\n".to_vec())
        }));
        let end = judge.run(&run)?;
        let said = judge.errors();
        let held = said.lines().last().and_then(|line| line.strip_prefix("held ")?.parse().ok());
        match (held, &end) {
            (Some(held), End::Done) => outcome.passed = held,
            // The problem's own code ran first, before any code of the answer.
            (_, End::Raised) => {
                let last = shown::line(said.lines().last().unwrap_or_default(), shown::LINE);
                return Ok(Err(format!("the problem's own tests cannot be run: {last}")));
            }
            // A value returned by the answer may keep the tests busy.
            _ => outcome.stopped = Some(reason(&end, &judge)),
        }
        Ok(Ok(outcome))
    }

    /// Grades by printed output, in a fresh interpreter for each input.
    fn by_outputs(
        &self,
        interpreter: &Interpreter,
        program: &str,
        limits: Limits,
    ) -> wasmtime::Result<Outcome> {
        let mut outcome = Outcome { passed: 0, tests: self.inputs.len(), stopped: None };
        let tolerance = self.tolerance.unwrap_or(text::TOLERANCE);
        let mut left = limits;
        for (input, wanted) in self.inputs.iter().zip(&self.outputs) {
            let mut session = interpreter.session(left)?;
            session.guest().give(text::lines(input).into_bytes());
            let mut end = self.begin(&mut session, program)?;
            if end == End::Done {
                end = session.run("_allot.flush()")?;
            }
            let output = String::from_utf8_lossy(&session.guest().output).into_owned();
            let right = matches!(end, End::Done | End::Exited(0))
                && text::same(&output, &text::lines(wanted), tolerance);
            outcome.passed += usize::from(right);
            left.fuel = session.fuel();
            if !right {
                outcome.stopped.get_or_insert_with(|| reason(&end, &session));
            }
            if left.fuel == 0 {
                break;
            }
        }
        Ok(outcome)
    }
}

/// Makes a call in an answer's interpreter and returns the reply; none if the interpreter has ended.
fn reply(answers: &mut Session, request: &[u8]) -> Option<Vec<u8>> {
    answers.guest().output.clear();
    answers.guest().give(request.to_vec());
    let End::Done = answers.run("_allot.answer()").ok()? else { return None };
    let output = &answers.guest().output;
    let mut line = output.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?.to_vec();
    line.push(b'\n');
    Some(line)
}

/// Returns why an answer stopped, in a few words.
fn reason(end: &End, session: &Session) -> String {
    let words = match end {
        End::Done => "it is not the expected result".to_owned(),
        End::Raised => session.last_error(),
        End::Exited(code) => format!("it ended the process with exit code {code}"),
        End::OutOfFuel => "it used up its instructions".to_owned(),
        End::Trapped(why) => format!("it crashed: {why}"),
    };
    shown::line(&words, shown::LINE)
}
