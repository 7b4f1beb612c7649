//! `[reward]` of a config: the graders.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_base::Error;
use serde::{Deserialize, Serialize};

use crate::{AnyGrader, ComponentConfig, HttpConfig, PythonConfig};

/// One grader, or several under `graders`, each with the same keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardConfig {
    /// The grader. `None` if there are several under `graders`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grader: Option<AnyGrader>,
    /// One of several: the name of its part of the reward; by default the grader's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// One of several: the sources whose problems it grades; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// One of several: the weight of its part of the reward; by default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f32>,
    /// One of several: whether it decides correctness. By default the first that grades the problem does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decides: Option<bool>,
    /// The reward of a correct answer.
    #[serde(default = "one")]
    pub right: f32,
    /// The reward of an incorrect answer.
    #[serde(default)]
    pub wrong: f32,
    /// The smallest reward of a correct answer, for graders that give a reward only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct_from: Option<f32>,
    /// The weight of each part by name, for graders that give a reward in parts; by default 1 each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f32>,
    /// What happens to a problem if the grader can read none of its gold answers.
    #[serde(default, skip_serializing_if = "Unreadable::is_default")]
    pub unreadable: Unreadable,
    /// A penalty on answers near the length limit.
    pub overlong: Option<Overlong>,
    /// The run ends with an error if this many answers from the start are all unscorable. By default 64; 0
    /// for no limit. Applies to all graders together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// The processes of an external grader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<JudgeConfig>,
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
    /// The regular expression of grader `pattern`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternConfig>,
    /// Several graders, each for a part of the reward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graders: Vec<RewardConfig>,
}

/// The regular expression of grader `pattern`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternConfig {
    /// A regular expression in the syntax of Rust's crate `regex`. It must match somewhere in the answer.
    pub regex: String,
}

/// Reward functions of Python trainers: verl's `compute_score`, TRL's `reward_funcs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionsConfig {
    /// The file that defines the functions.
    pub file: PathBuf,
    /// The functions' names. Rewards of several functions are parts with these names.
    #[serde(default = "compute_score")]
    pub names: Vec<String>,
    /// Whether TRL's functions get each answer as a list of messages, as for conversational data sets.
    #[serde(default)]
    pub messages: bool,
    /// Which answers a function is called for together, and may compare; by default each by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compares: Option<Compares>,
}

/// Which answers a reward function may compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compares {
    /// All answers that a request has to a prompt.
    Group,
    /// All answers of a request, to whichever prompts, in the order of sampling.
    Round,
}

/// The hint for grader `functions`.
pub const FUNCTIONS: &str =
    r#"write, under [reward.functions], file = "reward.py" and names = ["compute_score"]"#;

/// Returns the error of grader `functions` without its section.
pub fn no_functions(config: &str, place: &str) -> Error {
    Error::new(format!("{config} has grader `functions` but no section [{place}.functions]")).hint(FUNCTIONS)
}

/// Returns the error of grader `http` without its section.
pub fn no_server(config: &str, place: &str) -> Error {
    let hint = format!(
        r#"write, under [{place}.http], url = "http://localhost:8000/v1", api = "chat" and model = "…""#
    );
    Error::new(format!("{config} has grader `http` but no section [{place}.http]")).hint(hint)
}

/// Returns the error of grader `component` without its section.
pub fn no_component(config: &str, place: &str) -> Error {
    let hint = format!(
        r#"write, under [{place}.component], use = "./grader.wasm"; `allot new NAME --kind grader` starts one"#
    );
    Error::new(format!("{config} has grader `component` but no section [{place}.component]")).hint(hint)
}

fn compute_score() -> Vec<String> {
    vec!["compute_score".to_owned()]
}

/// Default of `patience`.
pub const PATIENCE: u32 = 64;

/// What happens to a problem if the grader can read none of its gold answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unreadable {
    /// The run does not start.
    #[default]
    Refuse,
    /// The problem is left out and reported.
    LeaveOut,
}

impl Unreadable {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The processes of an external grader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeConfig {
    /// The program and its arguments. For `math-verify`, a Python with that package; by default `python3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Number of processes.
    pub processes: usize,
    /// Time limit of one answer, in seconds.
    pub seconds: f64,
    /// Time limit of the start and the first answer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_seconds: Option<f64>,
}

/// DAPO's soft penalty on long answers (Yu et al. 2025, eq. 13): 0 up to `buffer` tokens before the limit,
/// then linear to `-penalty` at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlong {
    /// Tokens before the limit at which the penalty starts.
    pub buffer: u32,
    /// The penalty at the limit.
    pub penalty: f32,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self { command: None, processes: 2, seconds: 10.0, start_seconds: None }
    }
}

impl JudgeConfig {
    /// Returns the command of a Python for this program's scripts.
    pub fn python(&self) -> Vec<String> {
        self.command.clone().unwrap_or_else(|| vec!["python3".to_owned()])
    }

    /// Returns the time limit of the start: by default six times that of an answer, and at least 10
    /// seconds, because Python with sympy starts slowly from a slow disk.
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
            process: None,
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
    /// Returns the settings of each grader.
    pub fn each(&self) -> &[Self] {
        if self.graders.is_empty() { std::slice::from_ref(self) } else { &self.graders }
    }

    /// Returns whether this grader grades problems of a source.
    pub fn judges(&self, source: &str) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|own| is_of(source, own))
    }

    /// Returns the smallest reward of a correct answer. An environment's full reward is 1.
    pub fn correct_from(&self) -> Option<f32> {
        let is_played = matches!(self.grader, Some(AnyGrader::Environment | AnyGrader::Episode));
        self.correct_from.or(is_played.then_some(1.0))
    }

    /// Returns whether answers are graded in the sandbox: `python`, `math-verify` with `[reward.python]`.
    pub fn sandboxed(&self) -> bool {
        match self.grader {
            Some(AnyGrader::Python) => true,
            Some(AnyGrader::MathVerify) => self.python.is_some(),
            _ => false,
        }
    }

    /// Returns the command of the Python with the environments' packages, for grader `environment`.
    pub fn environments(&self) -> Option<Vec<String>> {
        let one = self.each().iter().find(|one| one.grader == Some(AnyGrader::Environment))?;
        Some(one.process.clone().unwrap_or_default().python())
    }

    /// Returns the name of this grader's part of the reward.
    pub fn part(&self) -> &str {
        self.name.as_deref().or_else(|| self.grader.map(AnyGrader::name)).unwrap_or_default()
    }

    /// Returns the names of the reward's parts, as far as the config names them.
    pub fn parts(&self) -> Vec<String> {
        if self.graders.is_empty() {
            return self.weights.keys().cloned().collect();
        }
        self.graders.iter().map(|one| one.part().to_owned()).collect()
    }
}

/// Returns whether a source is the one of this name or one of its levels: `sums/2` belongs to `sums`.
pub fn is_of(source: &str, name: &str) -> bool {
    source.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Maximum number of parts of a reward, and maximum length of a part's name, in characters.
pub const PARTS: usize = 64;

/// Returns whether a text is a valid name of a reward's part. Names are shown in metrics and on terminals.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=PARTS).contains(&name.len()) && name.chars().all(plain)
}

impl Overlong {
    /// Returns the penalty on an answer of this many tokens.
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
