//! A grader's description, its verdicts on answers, and its calls.

use allot_allocation::Value;
use allot_component::Setting;
use thiserror::Error;
use wasmtime::Store;

use crate::calls::Answer;
use crate::guest::GuestState;

/// The most characters kept of the reason for an unscorable answer.
pub(crate) const REASON: usize = 200;

/// A grader's description of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct GraderDescription {
    /// The grader's name: short and lower-case.
    pub name: String,
    /// The grader's own version.
    pub version: String,
    /// A one-line summary for users.
    pub summary: String,
    /// All settings that a run may set.
    pub settings: Vec<Setting>,
    /// Names of the parts of its rewards.
    pub parts: Vec<String>,
    /// Whether its verdicts compare the answers of a group.
    pub compares: bool,
}

/// An answer to be graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The problem.
    pub prompt: &'a str,
    /// The data source of the problem.
    pub source: &'a str,
    /// The accepted answers.
    pub gold: &'a [String],
    /// The answer.
    pub answer: &'a str,
}

/// A grader's score for an answer, or why there is none.
pub type Judged = Result<Score, NoVerdict>;

/// Why there is no verdict. The texts continue a sentence that begins with the grader's name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoVerdict {
    /// The grader returned that it can't grade the answer, with a reason.
    #[error("said: {0}")]
    Unscorable(String),
    /// The grader's verdict is invalid.
    #[error("{0}")]
    Unusable(String),
}

/// The score of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Whether the answer is correct, if the grader decides that.
    pub correct: Option<bool>,
    /// The reward, if the grader gives one.
    pub reward: Option<f32>,
    /// The reward's parts, sorted by name; empty unless the grader returns parts.
    pub parts: Vec<(String, f32)>,
}

/// Makes fresh instances of a component whose imports and exports fit the contract.
pub(crate) type Linked =
    Box<dyn Fn(&mut Store<GuestState>) -> wasmtime::Result<Box<dyn Guest>> + Send + Sync>;

/// A component instance, with the contract's three calls in the host's own types.
pub(crate) trait Guest {
    fn describe(&self, store: &mut Store<GuestState>) -> wasmtime::Result<GraderDescription>;

    fn begin(&self, store: &mut Store<GuestState>, settings: &[(String, Value)]) -> Answer<()>;

    fn grade(&self, store: &mut Store<GuestState>, batch: &[Asked<'_>]) -> wasmtime::Result<Vec<Judged>>;
}
