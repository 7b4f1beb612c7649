//! A problem's trial: its tests, or inputs with the outputs that they want, and what an answer comes to in it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{End, Interpreter, Limits, Session};

/// Instructions that a problem's own tests may take beside those of the answer.
const TESTS: u64 = 20_000_000_000;

/// What answers to a problem are judged by, as its gold answer has it: JSON, as HumanEval, MBPP, APPS and verl's data
/// have it. What else such a row holds is passed over.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// Code that stands before the answer: HumanEval's beginning of a function, with what it imports.
    pub prompt: String,
    /// HumanEval's tests: code that defines `check`.
    pub test: Option<String>,
    /// The function that `check` is called with.
    pub entry_point: Option<String>,
    /// MBPP's tests: statements that hold.
    pub test_list: Vec<String>,
    /// What comes before them.
    pub test_setup_code: String,
    /// And before that.
    pub test_imports: Vec<String>,
    /// APPS's inputs: a text for the standard input each, or with `fn_name` the arguments of a call.
    pub inputs: Vec<Value>,
    /// What each wants: a text on the standard output, or with `fn_name` a value.
    pub outputs: Vec<Value>,
    /// The function, or the method of a class `Solution`, that is called.
    pub fn_name: Option<String>,
}

/// What an answer came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Tests that it passed.
    pub passed: usize,
    /// All of them.
    pub tests: usize,
    /// Why it stopped before it had been through all of them, where it did.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Whether it passed all of them.
    pub fn is_right(&self) -> bool {
        self.passed == self.tests
    }
}

impl Trial {
    /// A gold answer's trial.
    ///
    /// # Errors
    ///
    /// What it lacks, as a sentence goes on after its name.
    pub fn of(gold: &str) -> Result<Self, String> {
        let trial: Self =
            serde_json::from_str(gold).map_err(|e| format!("is no JSON object with tests: {e}"))?;
        let kinds = [trial.test.is_some(), !trial.test_list.is_empty(), !trial.inputs.is_empty()];
        if kinds.iter().filter(|kind| **kind).count() != 1 {
            return Err("has not exactly one of `test`, `test_list` and `inputs`".to_owned());
        }
        if trial.test.is_some() && trial.entry_point.is_none() {
            return Err("has `test` and no `entry_point`".to_owned());
        }
        if trial.inputs.len() != trial.outputs.len() {
            let (inputs, outputs) = (trial.inputs.len(), trial.outputs.len());
            return Err(format!("has {inputs} inputs and {outputs} outputs"));
        }
        Ok(trial)
    }

    /// Judges an answer. All that it does in this trial, it does under these limits.
    ///
    /// # Errors
    ///
    /// Why it could not be judged: nothing that the answer can bring about.
    pub fn judge(&self, interpreter: &Interpreter, answer: &str, limits: Limits) -> Result<Outcome, String> {
        let program = format!("{}{}\n", self.prompt, code(answer));
        let broken = |e: wasmtime::Error| format!("the sandbox failed: {e:#}");
        if self.inputs.is_empty() {
            self.by_tests(interpreter, &program, limits).map_err(broken)?
        } else {
            self.by_outputs(interpreter, &program, limits).map_err(broken)
        }
    }

    fn by_tests(
        &self,
        interpreter: &Interpreter,
        program: &str,
        limits: Limits,
    ) -> wasmtime::Result<Result<Outcome, String>> {
        let (setup, tests, names) = if let (Some(test), Some(name)) = (&self.test, &self.entry_point) {
            (self.prompt.clone(), vec![format!("{test}\n\ncheck({name})\n")], vec![name.clone()])
        } else {
            let setup = format!("{}\n{}\n", self.test_imports.join("\n"), self.test_setup_code);
            (setup, self.test_list.clone(), Vec::new())
        };
        let mut outcome = Outcome { passed: 0, tests: tests.len(), stopped: None };
        let mut answers = interpreter.session(limits)?;
        let begun = answers.run(program)?;
        if begun != End::Done {
            outcome.stopped = Some(told(&begun, &mut answers));
            return Ok(Ok(outcome));
        }
        let mut judge = interpreter.session(Limits { fuel: TESTS, ..limits })?;
        judge.guest().answer = Some(Box::new(move |request| reply(&mut answers, request)));
        let asked = json!([setup, tests, names]).to_string();
        let end = judge.run(&format!("_allot.test(*json.loads({}))", Value::String(asked)))?;
        let said = String::from_utf8_lossy(&judge.guest().errors).into_owned();
        match said.strip_prefix("held ").and_then(|held| held.parse().ok()) {
            Some(held) => outcome.passed = held,
            // What an answer returns may keep the tests busy.
            None if end != End::Raised => outcome.stopped = Some(told(&end, &mut judge)),
            None => {
                let last = said.lines().last().unwrap_or_default().to_owned();
                return Ok(Err(format!("the problem's own tests cannot be run: {last}")));
            }
        }
        Ok(Ok(outcome))
    }

    fn by_outputs(
        &self,
        interpreter: &Interpreter,
        program: &str,
        limits: Limits,
    ) -> wasmtime::Result<Outcome> {
        let mut outcome = Outcome { passed: 0, tests: self.inputs.len(), stopped: None };
        let mut left = limits;
        for (input, wanted) in self.inputs.iter().zip(&self.outputs) {
            let mut session = interpreter.session(left)?;
            if self.fn_name.is_none() {
                session.guest().give(input.as_str().unwrap_or_default().as_bytes().to_vec());
            }
            let mut end = session.run(program)?;
            let right = match (&self.fn_name, &end) {
                (None, End::Done | End::Exited(0)) => {
                    if end == End::Done {
                        end = session.run("sys.stdout.flush()")?;
                    }
                    let output = String::from_utf8_lossy(&session.guest().output).into_owned();
                    matches!(end, End::Done | End::Exited(0)) && same_text(&output, wanted)
                }
                (Some(name), End::Done) => {
                    let request = json!([name, { "tuple": arguments(input) }, { "dict": [] }]);
                    let reply = reply(&mut session, format!("{request}\n").as_bytes());
                    let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
                    reply.get("value").is_some_and(|value| returned(value, wanted))
                }
                _ => false,
            };
            outcome.passed += usize::from(right);
            left.fuel = session.fuel();
            if !right {
                outcome.stopped.get_or_insert_with(|| told(&end, &mut session));
            }
            if left.fuel == 0 {
                break;
            }
        }
        Ok(outcome)
    }
}

/// Makes a call in an answer's interpreter, and gives its reply: `null` where there is none any more.
fn reply(answers: &mut Session, request: &[u8]) -> Vec<u8> {
    answers.guest().output.clear();
    answers.guest().give(request.to_vec());
    match answers.run("_allot.answer()") {
        Ok(End::Done) => {
            let output = &answers.guest().output;
            let line = output.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
            let mut line = line.unwrap_or(b"null").to_vec();
            line.push(b'\n');
            line
        }
        _ => b"null\n".to_vec(),
    }
}

/// Why an answer stopped, in a few words.
fn told(end: &End, session: &mut Session) -> String {
    match end {
        End::Done => "it is not what was wanted".to_owned(),
        End::Raised => {
            let errors = String::from_utf8_lossy(&session.guest().errors).into_owned();
            errors.lines().last().unwrap_or("it raised an exception").to_owned()
        }
        End::Exited(code) => format!("it ended the process with exit code {code}"),
        End::OutOfFuel => "it used up its instructions".to_owned(),
        End::Trapped(why) => format!("it broke off: {why}"),
    }
}

/// The program in an answer: its last block of code, or where there is none all of it.
pub fn code(answer: &str) -> &str {
    let mut last = None;
    let mut rest = answer;
    while let Some((_, after)) = rest.split_once("```") {
        // What stands behind the opening fence is a language.
        let Some((_, body)) = after.split_once('\n') else { break };
        let Some((block, behind)) = body.split_once("```") else {
            // It was cut off in the middle of its code.
            last = Some(body);
            break;
        };
        (last, rest) = (Some(block), behind);
    }
    last.unwrap_or(answer)
}

/// Whether an output is the one that is wanted, as checkers compare: word by word, white space aside.
fn same_text(output: &str, wanted: &Value) -> bool {
    let wanted = match wanted {
        Value::String(text) => text.clone(),
        Value::Array(lines) => {
            lines.iter().map(|line| line.as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    };
    output.split_whitespace().eq(wanted.split_whitespace())
}

/// The arguments of a call: a list of them, or a text with one on each line, as JSON.
fn arguments(input: &Value) -> Vec<Value> {
    match input {
        Value::Array(all) => all.iter().map(packed).collect(),
        Value::String(lines) => lines
            .lines()
            .map(|line| serde_json::from_str(line).map_or_else(|_| json!(line), |v| packed(&v)))
            .collect(),
        one => vec![packed(one)],
    }
}

/// A value as it goes into an interpreter.
fn packed(value: &Value) -> Value {
    match value {
        Value::Array(all) => json!({ "list": all.iter().map(packed).collect::<Vec<_>>() }),
        Value::Object(pairs) => {
            json!({ "dict": pairs.iter().map(|(key, value)| json!([key, packed(value)])).collect::<Vec<_>>() })
        }
        plain => plain.clone(),
    }
}

/// Whether what came out of an interpreter is what is wanted; APPS has some of those in a list of one.
fn returned(value: &Value, wanted: &Value) -> bool {
    let single = wanted.as_array().filter(|all| all.len() == 1).is_some_and(|all| same(value, &all[0]));
    same(value, wanted) || single
}

/// Whether a value that came out of an interpreter equals one of JSON, which has lists alone for tuples, and texts
/// alone for keys.
fn same(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(tagged), wanted) => match (tagged.iter().next(), wanted) {
            (Some((tag, Value::Array(all))), Value::Array(wanted)) if tag == "list" || tag == "tuple" => {
                all.len() == wanted.len() && all.iter().zip(wanted).all(|(a, b)| same(a, b))
            }
            (Some((tag, Value::Array(pairs))), Value::Object(wanted)) if tag == "dict" => {
                let text = |key: &Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                let pair = |pair: &Value| wanted.get(&text(&pair[0])).is_some_and(|w| same(&pair[1], w));
                pairs.len() == wanted.len() && pairs.iter().all(pair)
            }
            _ => false,
        },
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()
        }
        (a, b) => a == b,
    }
}
