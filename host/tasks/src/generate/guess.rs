//! Guesses: bounds of a hidden number, and a number of calls. The number itself is drawn when an episode begins.

use super::{Exercise, Style};
use crate::environment::guess::Bounds;

/// Returns the radices of the choices: the count of numbers, the least number, and the calls.
pub(super) fn radices(span: (u32, u32), calls: (u32, u32), numbers: u32) -> Vec<usize> {
    [span.1 - span.0 + 1, numbers - span.0 + 1, calls.1 - calls.0 + 1].map(|n| n as usize).to_vec()
}

/// Returns the guess of these choices, unless its numbers go beyond `numbers`.
pub(super) fn exercise(
    choices: &[usize],
    (span, calls): (u32, u32),
    numbers: u32,
    style: Style,
) -> Option<Exercise> {
    let low = choices[1] as u32;
    let high = low + span + choices[0] as u32 - 1;
    if high >= numbers {
        return None;
    }
    let bounds = |style| Bounds { low, high, calls: calls + choices[2] as u32, style };
    let terse = bounds(Style::Terse).question();
    Some(Exercise {
        essence: terse.clone(),
        terse,
        words: bounds(Style::Words).question(),
        gold: serde_json::to_string(&bounds(style)).ok()?,
    })
}
