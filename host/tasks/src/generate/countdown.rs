//! Countdowns: numbers, and a target to make from them, using each exactly once.
//!
//! TinyZero draws numbers and target independently (examples/data_preprocess/countdown.py). Here the target
//! is the value of a random expression of the numbers, so that a solution exists.

use std::ops::RangeInclusive;

use serde_json::json;

use super::Exercise;
use super::chain::Operator;

/// Returns the radices of the choices: a number for each term; then, until one number is left, the first
/// and the second one to combine, and the operator.
pub(super) fn radices(terms: usize, largest: usize, operators: usize) -> Vec<usize> {
    let merges = (2..=terms).rev().flat_map(|left| [left, left - 1, operators]);
    std::iter::repeat_n(largest, terms).chain(merges).collect()
}

/// Returns the countdown of these choices, unless they divide unevenly or miss the targets.
pub(super) fn exercise(
    choices: &[usize],
    terms: usize,
    operators: &[Operator],
    targets: &RangeInclusive<i64>,
) -> Option<Exercise> {
    let (numbers, merges) = choices.split_at(terms);
    let numbers: Vec<i64> = numbers.iter().map(|n| i64::try_from(*n + 1).ok()).collect::<Option<_>>()?;
    let mut left = numbers.clone();
    for merge in merges.chunks_exact(3) {
        let (a, b) = (left.swap_remove(merge[0]), left.swap_remove(merge[1]));
        left.push(match operators[merge[2]] {
            Operator::Plus => a.checked_add(b)?,
            Operator::Minus => a.checked_sub(b)?,
            Operator::Times => a.checked_mul(b)?,
            Operator::Over => a.checked_rem(b).filter(|rest| *rest == 0).and_then(|_| a.checked_div(b))?,
        });
    }
    let target = left.pop().filter(|target| targets.contains(target))?;
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let listed = listed(&numbers, ", ");
    Some(Exercise {
        terse: format!("{}>{target}:", listed.replace(' ', "")),
        // TinyZero's text without its part about tags. Only its "can only be used once" becomes the rule
        // that its grader applies.
        words: format!(
            "Using the numbers [{listed}], create an equation that equals {target}. You can use basic \
             arithmetic operations (+, -, *, /) and each number must be used exactly once."
        ),
        gold: json!({"target": target, "numbers": numbers}).to_string(),
        essence: format!("{}>{target}", self::listed(&sorted, ",")),
    })
}

fn listed(numbers: &[i64], between: &str) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Operator; 4] = [Operator::Plus, Operator::Minus, Operator::Times, Operator::Over];

    #[test]
    fn a_target_comes_out_of_the_choices() {
        // 6, 3, 4: 6 / 3 first, which leaves 4 and 2; then 2 - 4 or 4 - 2.
        let made = |last: [usize; 3], targets| {
            let choices = [&[5, 2, 3, 0, 1, 3][..], &last[..]].concat();
            exercise(&choices, 3, &ALL, &targets).map(|e| (e.terse, e.gold, e.essence))
        };
        let expected = ("6,3,4>8:", "{\"target\":8,\"numbers\":[6,3,4]}", "3,4,6>8");
        let times = made([0, 0, 2], 1..=100);
        assert_eq!(times.as_ref().map(|(t, g, e)| (t.as_str(), g.as_str(), e.as_str())), Some(expected));
        assert_eq!(made([0, 0, 2], 9..=100), None, "another target");
        assert_eq!(radices(3, 9, 4), [9, 9, 9, 3, 2, 4, 2, 1, 4]);
    }

    #[test]
    fn what_divides_unevenly_is_no_countdown() {
        assert!(exercise(&[6, 1, 0, 0, 3], 2, &ALL, &(0..=9)).is_none(), "7 / 2");
        assert!(exercise(&[7, 1, 0, 0, 3], 2, &ALL, &(0..=9)).is_some(), "8 / 2");
    }
}
