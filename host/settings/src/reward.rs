//! The part of a training run's config that says how answers are judged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_error::Error;
use serde::{Deserialize, Serialize};

use crate::{AnyGrader, ComponentConfig, HttpConfig, PythonConfig};

/// How answers are judged: by one grader, or by several, each of which is written in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardConfig {
    /// Who judges, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grader: Option<AnyGrader>,
    /// Of one of several: what its part of the reward is called; by default as the grader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of one of several: the sources whose problems it judges; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Of one of several: what its part of the reward weighs; by default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f32>,
    /// Of one of several: whether it says that an answer is correct; by default the first does that judges a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decides: Option<bool>,
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
    /// Answers in a row from the start that may be unscorable before a run ends with an error; by default 64, and 0 for
    /// any number. For all graders together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
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
    /// The component of grader `component`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentConfig>,
    /// The form that grader `pattern` wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternConfig>,
    /// Several graders, each for a part of the reward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<RewardConfig>,
}

/// A form that answers should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternConfig {
    /// A regular expression in Rust's syntax, which has to match somewhere in the answer.
    pub regex: String,
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
pub const FUNCTIONS: &str =
    r#"write, under [reward.functions], file = "reward.py" and names = ["compute_score"]"#;

/// Says that a config, called so, has no functions for their grader in this section.
pub fn no_functions(config: &str, place: &str) -> Error {
    Error::new(format!("{config} has grader `functions` and no section [{place}.functions]")).hint(FUNCTIONS)
}

/// Says that a config, called so, has no server for its grader in this section.
pub fn no_server(config: &str, place: &str) -> Error {
    let hint = format!(
        r#"write, under [{place}.http], url = "http://localhost:8000/v1", api = "chat" and model = "…""#
    );
    Error::new(format!("{config} has grader `http` and no section [{place}.http]")).hint(hint)
}

/// Says that a config, called so, has no component for its grader in this section.
pub fn no_component(config: &str, place: &str) -> Error {
    let hint = format!(
        r#"write, under [{place}.component], use = "./grader.wasm"; `allot new NAME --kind grader` starts one"#
    );
    Error::new(format!("{config} has grader `component` and no section [{place}.component]")).hint(hint)
}

fn compute_score() -> Vec<String> {
    vec!["compute_score".to_owned()]
}

/// The default of `patience`.
pub const PATIENCE: u32 = 64;

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
    /// The Python that runs a script of this program.
    pub fn python(&self) -> Vec<String> {
        self.command.clone().unwrap_or_else(|| vec!["python3".to_owned()])
    }

    /// Seconds to come up: six times those of an answer and at least ten, where nothing else is said. Python with
    /// sympy on a slow disk takes many.
    pub fn start_seconds(&self) -> f64 {
        self.start_seconds.unwrap_or_else(|| (6.0 * self.seconds).max(10.0))
    }
}

fn one() -> f32 {
    1.0
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self {
            grader: None,
            name: None,
            sources: Vec::new(),
            weight: None,
            decides: None,
            right: one(),
            wrong: 0.0,
            correct_from: None,
            weights: BTreeMap::new(),
            unreadable: Unreadable::default(),
            overlong: None,
            patience: None,
            judge: None,
            python: None,
            functions: None,
            http: None,
            component: None,
            pattern: None,
            graders: Vec::new(),
        }
    }
}

impl RewardConfig {
    /// Each of its graders with the settings of that one.
    pub fn each(&self) -> &[Self] {
        if self.graders.is_empty() { std::slice::from_ref(self) } else { &self.graders }
    }

    /// Whether this one judges problems of a source.
    pub fn judges(&self, source: &str) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|own| is_of(source, own))
    }

    /// From which reward on an answer is correct, where it is not said. An environment's whole reward is 1.
    pub fn correct_from(&self) -> Option<f32> {
        self.correct_from.or((self.grader == Some(AnyGrader::Environment)).then_some(1.0))
    }

    /// Whether answers are judged in the sandbox: generated Python, and math-verify where a section says so.
    pub fn sandboxed(&self) -> bool {
        match self.grader {
            Some(AnyGrader::Python) => true,
            Some(AnyGrader::MathVerify) => self.python.is_some(),
            _ => false,
        }
    }

    /// The Python that has the packages of environments, where an environment judges.
    pub fn environments(&self) -> Option<Vec<String>> {
        let one = self.each().iter().find(|one| one.grader == Some(AnyGrader::Environment))?;
        Some(one.judge.clone().unwrap_or_default().python())
    }

    /// What its part of the reward is called.
    pub fn part(&self) -> &str {
        self.name.as_deref().or_else(|| self.grader.map(AnyGrader::name)).unwrap_or_default()
    }

    /// The names of the parts that every reward is known to have before anything was judged.
    pub fn parts(&self) -> Vec<String> {
        if self.graders.is_empty() {
            return self.weights.keys().cloned().collect();
        }
        self.graders.iter().map(|one| one.part().to_owned()).collect()
    }
}

/// Whether a source is the one of this name, or a level of it: `sums/2` is one of `sums`.
pub fn is_of(source: &str, name: &str) -> bool {
    source.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The most parts of a reward, and the most characters of a part's name.
pub const PARTS: usize = 64;

/// Returns whether a part of a reward may be called so. Names go into metrics and onto screens.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=PARTS).contains(&name.len()) && name.chars().all(plain)
}

impl Overlong {
    /// The penalty on an answer of this length.
    pub fn of(self, tokens: u32, longest: u32) -> f32 {
        let over = tokens.saturating_sub(longest.saturating_sub(self.buffer));
        self.penalty * (over as f32 / self.buffer as f32).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_on_long_answers_grows_from_the_buffer_to_the_limit() {
        let overlong = Overlong { buffer: 4, penalty: 1.0 };
        let all: Vec<f32> = (4..=11).map(|n| overlong.of(n, 10)).collect();
        assert_eq!(all, [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
    }
}
