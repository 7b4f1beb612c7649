//! What a grader says: of itself, and of an answer.

use allot_component::Setting;
use thiserror::Error;

/// What a grader says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct GraderDescription {
    /// Short and lower-case.
    pub name: String,
    /// The grader's own version.
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// Every setting a run may give.
    pub settings: Vec<Setting>,
    /// Parts of its rewards, by name.
    pub parts: Vec<String>,
}

/// An answer to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The problem.
    pub prompt: &'a str,
    /// Where it comes from.
    pub source: &'a str,
    /// What counts as right.
    pub gold: &'a [String],
    /// The answer.
    pub answer: &'a str,
}

/// What a grader says of an answer, or why there is no verdict.
pub type Judged = Result<Score, NoVerdict>;

/// Why there is no verdict, as a sentence about the grader goes on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoVerdict {
    /// It says that it can't judge the answer, and why.
    #[error("said: {0}")]
    Unscorable(String),
    /// What it gives is no verdict.
    #[error("{0}")]
    Unusable(String),
}

/// What an answer is worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Whether it is right, if the grader says so.
    pub correct: Option<bool>,
    /// The reward, if the grader gives one.
    pub reward: Option<f32>,
    /// Or the parts of one, in the order of their names.
    pub parts: Vec<(String, f32)>,
}
