//! The lines of JSON between this program and grader processes.
//!
//! A process answers `{"id":1,"gold":["5"],"prompt":"2+3=","source":"sums","answer":"It is 5."}` by
//! `{"id":1,"correct":true}`, by `{"id":1,"reward":0.5}` or
//! `{"id":1,"rewards":{"format":1.0,"tests":0.25}}` with or without `correct`, or by `{"id":1,"error":"why
//! not"}`. Before its first answer it may give its name and version: `{"name":"my-judge","version":"1.2"}`.
//!
//! A process that adds `"lists":true` to them is sent many answers in one line, `{"id":2,"list":[{"gold":["5"],…},…]}`, and
//! answers `{"id":2,"list":[{"correct":true},…]}`. Answers that are compared are sent in the same way, under `group`.

use std::collections::BTreeMap;

use allot_settings::reward::{PARTS, is_name};
pub use allot_settings::words;
use allot_tasks::Problem;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_pickle::SerOptions;

/// A question to a grader.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The accepted answers.
    pub gold: Vec<String>,
    /// The answer to be graded.
    pub answer: String,
    /// The problem's question, before any template or chat format.
    pub prompt: String,
    /// The data source of the problem.
    pub source: String,
    /// The opinion of the environment, if the answer ended an episode.
    pub episode: Option<Opinion>,
    /// The group of answers that it belongs to: its prompt.
    pub group: u32,
}

impl Question {
    /// Returns the question about an answer to a problem, with these gold answers.
    pub fn of(problem: &Problem, answer: String, gold: Vec<String>) -> Self {
        let (prompt, source) = (problem.question.clone(), problem.source.clone());
        Self { gold, answer, prompt, source, ..Self::default() }
    }

    /// Returns the line that a grader process reads.
    pub fn line(&self, id: u64) -> String {
        line_of(&self.asked(Some(id)))
    }

    fn asked(&self, id: Option<u64>) -> Asked<'_> {
        let Self { gold, answer, prompt, source, .. } = self;
        Asked { id, gold, prompt, source, answer }
    }
}

/// The fields of a question in a line.
#[derive(Serialize)]
struct Asked<'q> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    gold: &'q [String],
    prompt: &'q str,
    source: &'q str,
    answer: &'q str,
}

/// Returns the line about answers that are compared.
pub fn group<'q>(id: u64, questions: impl Iterator<Item = &'q Question>) -> String {
    several(id, "group", questions)
}

/// Returns the line about answers that are judged one by one, for a process that takes them in this form, with its end. A
/// single one is asked about without a list.
pub fn list<'q>(id: u64, lists: Lists, questions: impl Iterator<Item = &'q Question>) -> Vec<u8> {
    let questions: Vec<&Question> = questions.collect();
    if let [question] = questions[..] {
        return (question.line(id) + "\n").into_bytes();
    }
    if lists != Lists::Pickle {
        return (several(id, "list", questions.into_iter()) + "\n").into_bytes();
    }
    let asked: Vec<Asked<'_>> = questions.into_iter().map(|question| question.asked(None)).collect();
    let pickled = serde_pickle::to_vec(&asked, SerOptions::new())
        .expect("lists of texts under fixed names can be pickled");
    let mut line = format!("{{\"id\":{id},\"pickle\":{}}}\n", pickled.len()).into_bytes();
    line.extend(pickled);
    line
}

fn several<'q>(id: u64, key: &str, questions: impl Iterator<Item = &'q Question>) -> String {
    let asked: Vec<Asked<'_>> = questions.map(|question| question.asked(None)).collect();
    format!(r#"{{"id":{id},"{key}":{}}}"#, line_of(&asked))
}

/// Returns JSON, not by way of a `Value`, which would copy every text.
fn line_of(asked: &impl Serialize) -> String {
    serde_json::to_string(asked).expect("texts and numbers under fixed names are JSON")
}

/// A named part of a reward.
pub type Part = (String, f32);

/// A grader's judgement of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Whether the answer is correct; none if the grader gives only rewards.
    pub correct: Option<bool>,
    /// The reward, if the grader gives one.
    pub reward: Option<f32>,
    /// The reward's parts, sorted by name, if the grader gives parts.
    pub parts: Vec<Part>,
    /// The share of passed tests, if the answer is graded by tests.
    pub share: Option<f32>,
    /// Whether math-verify's verdict is certain without an interpreter, if that is the grader, in the sandbox.
    pub certain: Option<bool>,
}

impl From<bool> for Judgement {
    fn from(correct: bool) -> Self {
        Self { correct: Some(correct), ..Self::default() }
    }
}

/// A grader's judgement of an answer, or why there is no verdict.
pub type Opinion = Result<Judgement, String>;

/// The name and version that a grader gives before its first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its version, as free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The line that a grader may write before its first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Greeting {
    name: Option<String>,
    version: Option<String>,
    /// Whether it takes lists of answers, and in which form.
    #[serde(default)]
    pub lists: Lists,
}

/// The form of lists that a process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Lists {
    /// None: `false`.
    #[default]
    No,
    /// JSON: `true`.
    Json,
    /// Python's pickle, for this program's own scripts: it is read in a third of the time. A line `{"id":2,"pickle":N}`
    /// comes before its N bytes; the answer is JSON.
    Pickle,
}

impl TryFrom<Value> for Lists {
    type Error = &'static str;

    fn try_from(said: Value) -> Result<Self, Self::Error> {
        match said {
            Value::Bool(false) => Ok(Self::No),
            Value::Bool(true) => Ok(Self::Json),
            Value::String(form) if form == "pickle" => Ok(Self::Pickle),
            _ => Err("`lists` is true, false or \"pickle\""),
        }
    }
}

impl Greeting {
    /// Parses a line; none if it has neither name nor version, and says nothing of lists.
    pub fn read(said: &[u8]) -> Option<Self> {
        let Self { name, version, lists } = serde_json::from_slice(said).ok()?;
        let shown = |text: Option<String>| text.map(|text| words(text.as_bytes()));
        let is_one = name.is_some() || version.is_some() || lists != Lists::No;
        is_one.then(|| Self { name: shown(name), version: shown(version), lists })
    }

    /// Returns the name and version.
    pub fn hello(&self) -> Hello {
        Hello { name: self.name.clone(), version: self.version.clone() }
    }
}

/// The fields of a grader's answer.
#[derive(Deserialize)]
struct Said<Id = IgnoredAny> {
    /// That of the question, in a line about one answer. It is a field here, since `flatten` would copy all fields first.
    id: Option<Id>,
    correct: Option<bool>,
    reward: Option<f64>,
    rewards: Option<BTreeMap<String, f64>>,
    error: Option<String>,
}

/// Parses a line that answers question `asked`; none if it does not answer it.
pub fn opinion(said: &[u8], asked: u64) -> Option<Opinion> {
    // A struct is read from an array, too.
    if !said.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let said: Said<u64> = serde_json::from_slice(said).ok()?;
    if said.id == Some(asked) { said.opinion() } else { None }
}

/// The line that a process answers about several answers.
#[derive(Deserialize)]
struct NumberedList {
    id: u64,
    #[serde(alias = "group")]
    list: Option<Vec<Said>>,
    error: Option<String>,
}

/// Parses a line that answers question `asked` about `count` answers; none if it does not answer it. The error is one of
/// all of them together.
pub fn opinions(line: &[u8], asked: u64, count: usize) -> Option<Result<Vec<Opinion>, String>> {
    let NumberedList { id, list, error } = serde_json::from_slice(line).ok()?;
    match (list, error) {
        (Some(list), None) if id == asked && list.len() == count => {
            list.into_iter().map(<Said>::opinion).collect::<Option<_>>().map(Ok)
        }
        (None, Some(why)) if id == asked => Some(Err(words(why.as_bytes()))),
        _ => None,
    }
}

/// Parses the same fields without an id; none if they contain no opinion.
pub fn said(value: &Value) -> Option<Opinion> {
    <Said>::deserialize(value).ok()?.opinion()
}

/// Returns an opinion as these fields.
pub fn words_of(opinion: &Opinion) -> Value {
    let Judgement { correct, reward, parts, .. } = match opinion {
        Ok(judgement) => judgement,
        Err(why) => return serde_json::json!({ "error": why }),
    };
    let mut said = serde_json::Map::new();
    said.extend(correct.map(|correct| ("correct".to_owned(), correct.into())));
    said.extend(reward.map(|reward| ("reward".to_owned(), reward.into())));
    if !parts.is_empty() {
        let parts = parts.iter().map(|(name, x)| (name.clone(), (*x).into())).collect();
        said.insert("rewards".to_owned(), Value::Object(parts));
    }
    Value::Object(said)
}

/// Converts a grader's number to 32 bits. Returns an error, with the name `what`, if it is not finite.
pub fn number(what: &str, x: f64) -> Result<f32, String> {
    let reward = x as f32;
    if reward.is_finite() { Ok(reward) } else { Err(format!("its {what} {x:e} is too large")) }
}

impl<Id> Said<Id> {
    fn opinion(self) -> Option<Opinion> {
        let Self { correct, reward, rewards, error, .. } = self;
        if reward.is_some() && rewards.is_some() {
            return None;
        }
        let parts = rewards.unwrap_or_default();
        if !parts.is_empty() && (parts.len() > PARTS || !parts.keys().all(|name| is_name(name))) {
            return None;
        }
        let silent = correct.is_none() && reward.is_none() && parts.is_empty();
        match error {
            Some(why) if silent => return Some(Err(words(why.as_bytes()))),
            Some(_) => return None,
            None if silent => return None,
            None => {}
        }
        let judgement = || -> Opinion {
            let reward = reward.map(|x| number("reward", x)).transpose()?;
            let part = |(name, x): (String, f64)| number(&format!("`{name}`"), x).map(|x| (name, x));
            let parts = parts.into_iter().map(part).collect::<Result<_, _>>()?;
            Ok(Judgement { correct, reward, parts, ..Judgement::default() })
        };
        Some(judgement())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_the_question_is_an_answer() {
        let said = |line: &str| opinion(line.as_bytes(), 7);
        let judged = |correct, reward, parts: &[(&str, f32)]| {
            let parts = parts.iter().map(|(name, x)| ((*name).to_owned(), *x)).collect();
            Some(Ok(Judgement { correct, reward, parts, ..Judgement::default() }))
        };
        assert_eq!(said("{\"id\":7,\"correct\":true}\n"), Some(Ok(true.into())));
        assert_eq!(said(r#"{"id":7,"correct":false,"error":null,"found":"5"}"#), Some(Ok(false.into())));
        assert_eq!(said(r#"{"id":7,"error":"no gold"}"#), Some(Err("no gold".to_owned())));
        assert_eq!(said(r#"{"id":7,"reward":-0.25}"#), judged(None, Some(-0.25), &[]));
        assert_eq!(said(r#"{"id":7,"reward":2,"correct":true}"#), judged(Some(true), Some(2.0), &[]));
        assert_eq!(
            said(r#"{"id":7,"rewards":{"b":1,"a":0.5}}"#),
            judged(None, None, &[("a", 0.5), ("b", 1.0)])
        );
        assert_eq!(said(r#"{"id":7,"reward":1e39}"#), Some(Err("its reward 1e39 is too large".to_owned())));
        for garbage in [
            "hello",
            "",
            r#"{"id":6,"correct":true}"#,
            r#"{"id":7}"#,
            r#"{"id":7,"correct":1}"#,
            r#"{"id":7,"correct":true,"error":"both"}"#,
            r#"{"id":7,"reward":1,"rewards":{"a":1}}"#,
            r#"{"id":7,"rewards":{}}"#,
            r#"{"id":7,"rewards":{"a b":1}}"#,
            r#"{"id":7,"reward":NaN}"#,
            r#"{"correct":true}"#,
            r#"{"id":"7","correct":true}"#,
            "[7,true,null,null,null]",
            "[7, true]\u{1b}[2J",
        ] {
            assert_eq!(said(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn a_judge_may_say_who_it_is() {
        let hello = |name: Option<&str>, version: Option<&str>, lists: Lists| {
            Some(Greeting { name: name.map(str::to_owned), version: version.map(str::to_owned), lists })
        };
        assert_eq!(
            Greeting::read(b"{\"name\":\"x\",\"version\":\"1\"}\n"),
            hello(Some("x"), Some("1"), Lists::No)
        );
        assert_eq!(Greeting::read(br#"{"version":"1"}"#), hello(None, Some("1"), Lists::No));
        assert_eq!(Greeting::read(br#"{"version":"1","lists":true}"#), hello(None, Some("1"), Lists::Json));
        assert_eq!(Greeting::read(br#"{"lists":"pickle"}"#), hello(None, None, Lists::Pickle));
        for other in
            ["{}", "[]", r#"{"id":1,"correct":true}"#, r#"{"id":1,"version":"1"}"#, r#"{"lists":"yaml"}"#]
        {
            assert_eq!(Greeting::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn words_are_short_and_obey_no_one() {
        assert_eq!(words(b" a\x1b[2Jb\tc \n"), r"a\u001b[2Jb\tc");
        assert_eq!(words("ü".repeat(5000).as_bytes()), "ü".repeat(100) + "…");
        assert_eq!(words(b"\xff"), "\u{fffd}");
    }
}
