//! Mistakes in demonstrations.

use allot_allocation::seed::Stream;
use allot_tasks::column_sum::column_sum;
use serde::{Deserialize, Serialize};

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mistake {
    /// A carry or borrow is forgotten, each with the slip's probability. The carry of the leftmost column
    /// is always written down. A problem is therefore harder the more carries it has, and always right
    /// without carries. For terse sums, and chains of + and -.
    Carry,
    /// One digit is replaced by another, with the slip's probability. For any problem.
    Digit,
    /// The right answer with a `+` in front, with the slip's probability. A grader that compares texts
    /// rejects it, so the model must first learn the form. For any problem, with an alphabet that has `+`.
    Form,
    /// A turn of a game is a careless player's, with the slip's probability: a guess calls any number that is left
    /// instead of the middle one; a calculator is left alone, and the rest added in the head, where half of the
    /// carries are forgotten.
    Careless,
}

impl Mistake {
    /// Returns an answer to a question, right or not; `None` if this mistake can't be made in it.
    pub fn answer(self, question: &str, gold: &str, slip: f64, stream: &mut Stream) -> Option<String> {
        match self {
            Self::Carry => column_sum(&terms(question)?, || stream.unit() < slip).map(|sum| sum.to_string()),
            Self::Digit if stream.unit() < slip => another_digit(gold, stream),
            Self::Form if stream.unit() < slip => Some(format!("+{gold}")),
            Self::Digit | Self::Form => Some(gold.to_owned()),
            // A game has no answer before it is played.
            Self::Careless => None,
        }
    }
}

/// Returns the terms of `12+34-5=`, with their signs.
fn terms(question: &str) -> Option<Vec<i64>> {
    let sum = question.strip_suffix('=')?;
    let starts: Vec<usize> = sum.match_indices(['+', '-']).map(|(at, _)| at).collect();
    let ends = starts.iter().copied().chain([sum.len()]);
    std::iter::once(0)
        .chain(starts.iter().copied())
        .zip(ends)
        .map(|(from, to)| sum[from..to].parse().ok())
        .collect()
}

/// Replaces one digit of a text by another. A leading digit does not become 0.
fn another_digit(gold: &str, stream: &mut Stream) -> Option<String> {
    let digits: Vec<usize> =
        gold.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
    let at = *digits.get(stream.below(digits.len().max(1)))?;
    let leads = digits.len() > 1 && at == digits[0];
    let old: u32 = gold[at..=at].parse().ok()?;
    let others: Vec<u32> = (u32::from(leads)..10).filter(|digit| *digit != old).collect();
    let new = others[stream.below(others.len())];
    Some(format!("{}{new}{}", &gold[..at], &gold[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all answers of 4000 draws with their counts, most frequent first.
    fn answers(mistake: Mistake, question: &str, gold: &str, slip: f64) -> Vec<(String, usize)> {
        let mut all: Vec<(String, usize)> = Vec::new();
        for seed in 0..4000 {
            let mut stream = Stream::new(allot_allocation::seed::world(seed, 0, 0));
            let answer = mistake.answer(question, gold, slip, &mut stream).unwrap_or_default();
            match all.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, count)) => *count += 1,
                None => all.push((answer, 1)),
            }
        }
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    #[track_caller]
    fn check(question: &str, expected: &[(&str, f64)]) {
        let found = answers(Mistake::Carry, question, "", 0.3);
        assert_eq!(found.len(), expected.len(), "{question} {found:?}");
        for (answer, share) in expected {
            let count = found.iter().find(|(a, _)| a == answer).map_or(0, |(_, n)| *n);
            // The standard deviation is at most 0.008.
            assert!((count as f64 / 4000.0 - share).abs() < 0.03, "{question} {answer} {found:?}");
        }
    }

    #[test]
    fn each_carry_is_forgotten_now_and_then() {
        check("7+8=", &[("15", 1.0)]);
        check("12+34=", &[("46", 1.0)]);
        check("57+68=", &[("125", 0.7), ("115", 0.3)]);
        check("156+377=", &[("533", 0.49), ("433", 0.21), ("523", 0.21), ("423", 0.09)]);
        check("47+48+29=", &[("124", 0.7), ("104", 0.3)]);
    }

    #[test]
    fn each_borrow_is_forgotten_now_and_then() {
        check("68-25=", &[("43", 1.0)]);
        check("62-25=", &[("37", 0.7), ("47", 0.3)]);
        check("25-62=", &[("-37", 0.7), ("-47", 0.3)]);
        check("25-25=", &[("0", 1.0)]);
    }

    #[test]
    fn what_is_no_sum_has_no_carries() {
        for question in ["12*34=", "12+34", "", "=", "12 + 34="] {
            let answer = Mistake::Carry.answer(question, "1", 0.5, &mut Stream::new(1));
            assert_eq!(answer, None, "{question}");
        }
    }

    #[test]
    fn a_right_answer_has_another_form() {
        let all = answers(Mistake::Form, "", "-407", 0.75);
        assert_eq!(all.iter().map(|(answer, _)| answer.as_str()).collect::<Vec<_>>(), ["+-407", "-407"]);
        assert!((2900..3100).contains(&all[0].1), "{}", all[0].1);
    }

    #[test]
    fn one_digit_is_another() {
        let all = answers(Mistake::Digit, "", "-407", 0.5);
        assert_eq!(all[0].0, "-407", "the right one is the most frequent");
        assert!((1850..2150).contains(&all[0].1), "{}", all[0].1);
        // 8 first digits, 9 second and 9 third ones, and the right answer.
        assert_eq!(all.len(), 27, "{all:?}");
        let differ = |a: &str| a.chars().zip("-407".chars()).filter(|(a, b)| a != b).count();
        assert!(all[1..].iter().all(|(a, _)| a.len() == 4 && differ(a) == 1 && !a.starts_with("-0")));
        assert!(answers(Mistake::Digit, "", "0", 1.0).iter().all(|(a, _)| a != "0"));
    }
}
