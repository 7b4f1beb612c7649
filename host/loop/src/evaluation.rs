//! Results of evaluations on held-out problems.

use allot_allocation::Spent;
use serde::{Deserialize, Serialize};

/// Results of an evaluation on held-out problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Share of correct answers.
    pub accuracy: f64,
    /// Further results, by name.
    pub parts: Vec<(String, f64)>,
    /// Amounts spent on evaluation so far, counted separately. `None` if evaluation costs nothing.
    pub spent: Option<Spent>,
}
