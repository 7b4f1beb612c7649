//! The part of a training run's config that says how answers are judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_error::{Error, Result};
use allot_files::looks_like_a_path;
use allot_interpreter::trial::Trial;
use allot_tasks::grader::Grader;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::environment;
use crate::http::HttpConfig;
use crate::pool::python;
use crate::protocol::is_name;
use crate::sandboxed::PythonConfig;

/// How answers are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardConfig {
    /// Who judges.
    pub grader: AnyGrader,
    /// The reward of a right answer.
    #[serde(default = "one")]
    pub right: f32,
    /// The reward of a wrong one.
    #[serde(default)]
    pub wrong: f32,
    /// From which reward on an answer is correct, where a judge gives rewards and not whether it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct_from: Option<f32>,
    /// What each part of a reward weighs, by name, where a judge gives it in parts; without it each weighs 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f32>,
    /// What becomes of a problem none of whose gold answers the grader can read.
    #[serde(default, skip_serializing_if = "Unreadable::is_default")]
    pub unreadable: Unreadable,
    /// A penalty on answers that come near the length limit.
    pub overlong: Option<Overlong>,
    /// The processes of a grader that is no part of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeConfig>,
    /// The sandbox of grader `python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonConfig>,
    /// The reward functions of grader `functions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionsConfig>,
    /// The server of grader `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
}

/// Reward functions as Python trainers have them: verl's `compute_score`, TRL's `reward_funcs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionsConfig {
    /// The file that defines them.
    pub file: PathBuf,
    /// Their names. The rewards of several are parts, by these names.
    #[serde(default = "compute_score")]
    pub names: Vec<String>,
    /// Whether functions in TRL's way get an answer as a list of messages, as for conversational data sets.
    #[serde(default)]
    pub messages: bool,
}

/// What to write for grader `functions`.
const FUNCTIONS: &str =
    r#"write, under [reward.functions], file = "reward.py" and names = ["compute_score"]"#;

/// Says that a config, called so, has no functions for their grader.
pub(crate) fn no_functions(config: &str) -> Error {
    Error::new(format!("{config} has grader `functions` and no section [reward.functions]")).hint(FUNCTIONS)
}

/// Says that a config, called so, has no server for its grader.
pub(crate) fn no_server(config: &str) -> Error {
    let hint =
        r#"write, under [reward.http], url = "http://localhost:8000/v1", api = "chat" and model = "…""#;
    Error::new(format!("{config} has grader `http` and no section [reward.http]")).hint(hint)
}

fn compute_score() -> Vec<String> {
    vec!["compute_score".to_owned()]
}

/// A grader: one of ours, or processes that judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyGrader {
    /// A part of this program.
    Native(Grader),
    /// Python's math-verify.
    MathVerify,
    /// A command of the user's own.
    Command,
    /// Reward functions in a file of Python.
    Functions,
    /// Tests, or inputs and outputs, of generated Python, in the sandbox.
    Python,
    /// A server that judges.
    Http,
    /// The environment that made the problem.
    Environment,
}

/// What becomes of a problem none of whose gold answers the grader can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unreadable {
    /// The run does not begin.
    #[default]
    Refuse,
    /// It is left out and told of.
    LeaveOut,
}

impl Unreadable {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The processes of a grader that is no part of this program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeConfig {
    /// The program and its arguments. For grader `math-verify` a Python that has it, by default `python3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Processes at a time.
    pub processes: usize,
    /// Seconds for one answer.
    pub seconds: f64,
    /// Seconds to come up and answer for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_seconds: Option<f64>,
}

/// DAPO's soft penalty on long answers (Yu et al. 2025, eq. 13): nothing up to the limit less
/// `buffer`, then falling in a straight line to `-penalty` at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlong {
    /// Tokens before the limit over which it grows.
    pub buffer: u32,
    /// What it comes to at the limit.
    pub penalty: f32,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self { command: None, processes: 2, seconds: 10.0, start_seconds: None }
    }
}

impl JudgeConfig {
    /// Seconds to come up: six times those of an answer and at least ten, where nothing else is said. Python with
    /// sympy on a slow disk takes many.
    pub fn start_seconds(&self) -> f64 {
        self.start_seconds.unwrap_or_else(|| (6.0 * self.seconds).max(10.0))
    }
}

fn one() -> f32 {
    1.0
}

impl AnyGrader {
    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native(grader) => grader.name(),
            Self::MathVerify => "math-verify",
            Self::Command => "command",
            Self::Functions => "functions",
            Self::Python => "python",
            Self::Http => "http",
            Self::Environment => "environment",
        }
    }

    /// Whether it gives rewards of its own, and not only whether an answer is right.
    pub fn gives_rewards(self) -> bool {
        matches!(self, Self::Command | Self::Functions | Self::Http | Self::Environment)
    }

    /// The grader, where it is a part of this program.
    pub fn native(self) -> Option<Grader> {
        match self {
            Self::Native(grader) => Some(grader),
            Self::MathVerify
            | Self::Command
            | Self::Functions
            | Self::Python
            | Self::Http
            | Self::Environment => None,
        }
    }

    /// Whether it can read a gold answer. Judges that are processes read for themselves.
    pub fn reads(self, gold: &str) -> bool {
        match self {
            Self::Native(grader) => grader.reads(gold),
            Self::Python => Trial::of(gold).is_ok(),
            Self::Environment => environment::reads(gold),
            Self::MathVerify | Self::Command | Self::Functions | Self::Http => true,
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Grader::ALL.into_iter().map(Self::Native).chain([
            Self::MathVerify,
            Self::Command,
            Self::Functions,
            Self::Python,
            Self::Http,
            Self::Environment,
        ])
    }
}

impl Serialize for AnyGrader {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for AnyGrader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::all().find(|grader| grader.name() == name).ok_or_else(|| {
            let known: Vec<String> = Self::all().map(|g| format!("`{}`", g.name())).collect();
            let known = known.join(", ");
            serde::de::Error::custom(format!("unknown variant `{name}`, expected one of {known}"))
        })
    }
}

impl RewardConfig {
    /// Checks it for answers of at most so many tokens; `name` is what the config is called in an error.
    pub fn check(&self, name: &str, longest: u32) -> Result<()> {
        let wrong = |key: &str, value: f64, rule: &str| {
            Err(Error::new(format!("`{name}`: `reward.{key}` is {value}; {rule}")))
        };
        let penalty = self.overlong.map_or(0.0, |o| o.penalty);
        let weights = self.weights.iter().map(|(part, x)| (format!("weights.{part}"), *x));
        let numbers = [
            ("right", self.right),
            ("wrong", self.wrong),
            ("correct_from", self.correct_from.unwrap_or(0.0)),
            ("overlong.penalty", penalty),
        ];
        for (key, x) in numbers.map(|(key, x)| (key.to_owned(), x)).into_iter().chain(weights) {
            if !x.is_finite() {
                return wrong(&key, f64::from(x), "it is finite");
            }
        }
        if penalty < 0.0 {
            return wrong("overlong.penalty", f64::from(penalty), "it is 0 or more: it is taken away");
        }
        if let Some(Overlong { buffer, .. }) = self.overlong
            && (buffer == 0 || buffer > longest)
        {
            return wrong("overlong.buffer", f64::from(buffer), "it is from 1 to `rollout.max_tokens`");
        }
        if let Some(part) = self.weights.keys().find(|part| !is_name(part)) {
            let what = format!("`{name}`: `reward.weights` has a part {part:?}");
            return Err(
                Error::new(what).hint("a part's name has letters, digits, `_`, `-` and `.`, 64 at most")
            );
        }
        let given = [("correct_from", self.correct_from.is_some()), ("weights", !self.weights.is_empty())];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given && !self.grader.gives_rewards()) {
            let grader = self.grader.name();
            let what =
                format!("`{name}` has `reward.{key}`, and grader `{grader}` gives no rewards of its own");
            return Err(
                Error::new(what).hint("leave it out, or take grader `command`, `functions` or `http`")
            );
        }
        let words = self.judge.as_ref().and_then(|j| j.command.as_ref());
        match (self.grader, &self.judge) {
            (AnyGrader::Native(_) | AnyGrader::Python | AnyGrader::Http, Some(_)) => {
                let what = format!(
                    "`{name}` has a section [reward.judge], and grader `{}` has no processes",
                    self.grader.name()
                );
                return Err(Error::new(what)
                    .hint("leave the section out, or take grader `command`, `functions` or `math-verify`"));
            }
            (AnyGrader::Command, _) if words.is_none() => {
                let what = format!("`{name}` has grader `command` and no command");
                let hint = r#"write one under [reward.judge], like command = ["python3", "judge.py"]"#;
                return Err(Error::new(what).hint(hint));
            }
            _ => {}
        }
        self.check_functions(name)?;
        self.check_http(name)?;
        match &self.python {
            Some(_) if self.grader != AnyGrader::Python => {
                let grader = self.grader.name();
                let what = format!("`{name}` has a section [reward.python], and its grader is `{grader}`");
                return Err(Error::new(what).hint("leave the section out, or take grader `python`"));
            }
            Some(python) => {
                if let Some((key, value, rule)) = python.wrong() {
                    return wrong(key, value, rule);
                }
            }
            None => {}
        }
        if words.is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            let what = format!("`{name}`: `reward.judge.command` is empty");
            return Err(Error::new(what).hint("it is a program and its arguments, each a text of its own"));
        }
        if let Some(judge) = &self.judge {
            if !(1..=1024).contains(&judge.processes) {
                return wrong("judge.processes", judge.processes as f64, "it is from 1 to 1024");
            }
            if !(judge.seconds > 0.0 && judge.seconds <= 86_400.0) {
                let rule = "it is more than 0 and at most a day, 86400";
                return wrong("judge.seconds", judge.seconds, rule);
            }
            let start = judge.start_seconds();
            if !(start > 0.0 && start <= 604_800.0) {
                return wrong("judge.start_seconds", start, "it is more than 0 and at most a week, 604800");
            }
        }
        Ok(())
    }

    /// From which reward on an answer is correct, where it is not said. An environment's whole reward is 1.
    pub fn correct_from(&self) -> Option<f32> {
        self.correct_from.or((self.grader == AnyGrader::Environment).then_some(1.0))
    }

    /// The Python that has the packages of environments, where an environment judges.
    pub fn environments(&self) -> Option<Vec<String>> {
        (self.grader == AnyGrader::Environment).then(|| python(&self.judge.clone().unwrap_or_default()))
    }

    fn check_functions(&self, name: &str) -> Result<()> {
        let error = match (&self.functions, self.grader) {
            (None, AnyGrader::Functions) => return Err(no_functions(&format!("`{name}`"))),
            (Some(functions), AnyGrader::Functions) => {
                let twice = |name: &String| functions.names.iter().filter(|other| *other == name).count() > 1;
                match functions.names.iter().find(|function| !is_name(function) || twice(function)) {
                    Some(function) => format!("`{name}`: `reward.functions.names` has {function:?}"),
                    None if functions.names.is_empty() => {
                        format!("`{name}`: `reward.functions.names` is empty")
                    }
                    None => return Ok(()),
                }
            }
            (Some(_), grader) => {
                let grader = grader.name();
                format!("`{name}` has a section [reward.functions], and its grader is `{grader}`")
            }
            (None, _) => return Ok(()),
        };
        Err(Error::new(error).hint(FUNCTIONS))
    }

    fn check_http(&self, name: &str) -> Result<()> {
        match (&self.http, self.grader) {
            (Some(http), AnyGrader::Http) => match http.wrong() {
                None => Ok(()),
                Some((key, value, rule)) => {
                    Err(Error::new(format!("`{name}`: `reward.http.{key}` is {value}; {rule}")))
                }
            },
            (None, AnyGrader::Http) => Err(no_server(&format!("`{name}`"))),
            (Some(_), grader) => {
                let grader = grader.name();
                let what = format!("`{name}` has a section [reward.http], and its grader is `{grader}`");
                Err(Error::new(what).hint("leave the section out, or take grader `http`"))
            }
            (None, _) => Ok(()),
        }
    }

    /// Makes whole each path of a file here, in the command or of an interpreter, so that the run can be taken up from
    /// elsewhere.
    pub fn settle(&mut self) -> Result<()> {
        if let Some(path) = self.python.as_mut().and_then(|python| python.interpreter.as_mut()) {
            *path = std::path::absolute(&*path).map_err(|e| Error::file("find", path, &e))?;
        }
        if let Some(path) = self.functions.as_mut().map(|functions| &mut functions.file) {
            *path = std::path::absolute(&*path).map_err(|e| Error::file("find", path, &e))?;
        }
        let words = self.judge.iter_mut().filter_map(|j| j.command.as_mut()).flatten();
        for word in words.filter(|w| looks_like_a_path(w) && Path::new(w.as_str()).is_file()) {
            let path = std::path::absolute(&*word).map_err(|e| Error::file("find", Path::new(word), &e))?;
            *word = path.display().to_string();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grader_is_written_as_it_is_read() {
        for grader in AnyGrader::all() {
            let written = serde_json::to_value(grader).ok();
            assert_eq!(written, Some(grader.name().into()));
            assert_eq!(written.and_then(|w| serde_json::from_value(w).ok()), Some(grader));
        }
    }
}
