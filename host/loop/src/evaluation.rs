//! Held-out accuracy: what it came to.

use allot_allocation::Spent;
use serde::{Deserialize, Serialize};

/// How good a model is on held-out problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Share of right answers.
    pub accuracy: f64,
    /// Further numbers, by name.
    pub parts: Vec<(String, f64)>,
    /// What evaluation has spent so far, in a book of its own; none where it costs nothing.
    pub spent: Option<Spent>,
}
