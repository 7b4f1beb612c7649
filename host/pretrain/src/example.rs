//! An exercise, and a demonstration of it as tokens.

use std::ops::Range;

use allot_tasks::environment::Embedded;

/// A problem as text, and its question as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercise {
    /// The question.
    pub question: String,
    /// The question as tokens.
    pub prompt: Vec<u32>,
    /// The right answer, or the description of the game.
    pub gold: String,
    /// The environment in which it is an episode.
    pub environment: Option<Embedded>,
}

/// A demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Question, answer and end, as tokens.
    pub tokens: Vec<u32>,
    /// The number of tokens of the question.
    pub prompt: usize,
    /// Ranges of tokens that an environment says between the turns of an episode.
    pub observed: Vec<Range<usize>>,
}
