//! Calculators: numbers to add, and a number of calls.

use super::{Exercise, Style};
use crate::environment::calculator::Addends;

/// Returns the exercise of these numbers with so many calls.
pub(super) fn exercise(numbers: Vec<u32>, calls: u32, style: Style) -> Option<Exercise> {
    let addends = |numbers, style| Addends { numbers, calls, style };
    let terse = addends(numbers.clone(), Style::Terse).question();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    Some(Exercise {
        essence: addends(sorted, Style::Terse).question(),
        terse,
        words: addends(numbers.clone(), Style::Words).question(),
        gold: serde_json::to_string(&addends(numbers, style)).ok()?,
    })
}
