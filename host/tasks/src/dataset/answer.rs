//! Gold answers in a column's value.
//!
//! Changes to a value are minimal: numbers lose an empty fraction, text its outer white space. Graders
//! handle `$…$`, commas and units.

use serde_json::{Number, Value};

/// From 2^53 on, not every whole number has a float.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// Rules for extracting gold answers from text.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    /// The answer follows the last occurrence of this marker.
    pub after: Option<&'a str>,
    /// The answer is in the last `\boxed{…}`.
    pub boxed: bool,
    /// Whether the column may have worked solutions for which the config has no rule.
    pub may_be_worked: bool,
}

/// Reason why a value is not an answer.
#[derive(Debug, PartialEq)]
pub(super) enum AnswerFault {
    /// A whole number too large to be exact as a float.
    Inexact(String),
    /// The marker is missing.
    NoMarker(String),
    /// There is no box, or it is not closed.
    NoBox,
    /// A worked solution of GSM8K, without a marker in the config.
    Worked,
    /// A solution with a box, without a rule in the config.
    WorkedBox,
    /// A list within a list.
    Nested,
}

impl Answers<'_> {
    /// Returns the gold answers in a value, each once; none if it is null or blank.
    ///
    /// Any answer in a list counts as right, as in `deepscaler/rewards/math_reward.py`. The lists of two in
    /// Minerva's file are two spellings of one answer.
    pub(super) fn golds(&self, value: &Value) -> Result<Vec<String>, AnswerFault> {
        let all = match value {
            Value::Array(several) => several.iter().map(|one| self.gold(one)).collect::<Result<_, _>>()?,
            one => vec![self.gold(one)?],
        };
        let mut golds: Vec<String> = Vec::new();
        for gold in all.into_iter().flatten() {
            if !golds.contains(&gold) {
                golds.push(gold);
            }
        }
        Ok(golds)
    }

    fn gold(&self, value: &Value) -> Result<Option<String>, AnswerFault> {
        match value {
            Value::Null => Ok(None),
            Value::Bool(flag) => Ok(Some(flag.to_string())),
            Value::Number(number) => plain(number).map(Some),
            Value::String(text) => self.text(text),
            Value::Array(_) => Err(AnswerFault::Nested),
            // TinyZero's ground truth: `{"target": 98, "numbers": [44, 19, 35]}`.
            Value::Object(_) => Ok(Some(value.to_string())),
        }
    }

    fn text(&self, text: &str) -> Result<Option<String>, AnswerFault> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return Ok(None);
        }
        match self.after {
            Some(marker) => {
                let found = rest.rsplit_once(marker).filter(|_| !marker.is_empty());
                match found {
                    Some((_, after)) => rest = after.trim(),
                    None if marker.is_empty() => {}
                    None => return Err(AnswerFault::NoMarker(marker.to_owned())),
                }
            }
            // With a whole solution as the gold answer, every answer would silently be wrong.
            None if !self.boxed && rest.lines().any(|line| line.starts_with("#### ")) => {
                return Err(AnswerFault::Worked);
            }
            None if !self.boxed && self.may_be_worked && rest.contains("\\boxed") => {
                return Err(AnswerFault::WorkedBox);
            }
            None => {}
        }
        if self.boxed {
            rest = last_box(rest).ok_or(AnswerFault::NoBox)?.trim();
        }
        Ok(Some(rest.to_owned()).filter(|gold| !gold.is_empty()))
    }
}

/// Formats a number without an empty fraction: verl's files have 142.0 for 142.
fn plain(number: &Number) -> Result<String, AnswerFault> {
    match number.as_f64() {
        Some(float) if number.is_f64() => match float {
            _ if float.fract() != 0.0 => Ok(float.to_string()),
            _ if float.abs() >= INEXACT => Err(AnswerFault::Inexact(float.to_string())),
            _ => Ok((float as i64).to_string()),
        },
        _ => Ok(number.to_string()),
    }
}

/// Returns the content of the last `\boxed{…}`, with balanced braces.
fn last_box(text: &str) -> Option<&str> {
    const OPEN: &str = "\\boxed{";
    let inside = &text[text.rfind(OPEN)? + OPEN.len()..];
    let mut depth = 1;
    let mut escaped = false;
    for (at, char) in inside.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(after: Option<&str>, boxed: bool, value: Value, expected: Result<&[&str], AnswerFault>) {
        let expected = expected.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        let answers = Answers { after, boxed, may_be_worked: false };
        assert_eq!(answers.golds(&value), expected, "{value}");
    }

    #[test]
    fn values_become_golds() {
        check(None, false, json!("$\\frac{1}{2}$\n"), Ok(&["$\\frac{1}{2}$"]));
        check(None, false, json!(142.0), Ok(&["142"]));
        check(None, false, json!(-0.0), Ok(&["0"]));
        check(None, false, json!(12.8), Ok(&["12.8"]));
        check(None, false, json!(18_446_744_073_709_551_615_u64), Ok(&["18446744073709551615"]));
        check(None, false, json!(["9.6\n", "9.6", " 10 "]), Ok(&["9.6", "10"]));
        check(None, false, json!([null, "", 3]), Ok(&["3"]));
        check(
            None,
            false,
            json!({"target": 98, "numbers": [44, 19]}),
            Ok(&["{\"target\":98,\"numbers\":[44,19]}"]),
        );
        for nothing in [json!(null), json!(""), json!(" \n"), json!([]), json!([null])] {
            check(None, false, nothing, Ok(&[]));
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        check(None, false, json!(1e20), Err(AnswerFault::Inexact("100000000000000000000".into())));
        check(None, false, json!([["1"]]), Err(AnswerFault::Nested));
        check(None, false, json!("so it is\n#### 18"), Err(AnswerFault::Worked));
        check(Some("####"), false, json!("18"), Err(AnswerFault::NoMarker("####".into())));
        check(None, true, json!("\\boxed{1"), Err(AnswerFault::NoBox));
    }

    #[test]
    fn answers_are_cut_out_of_solutions() {
        check(Some("####"), false, json!("no #### 17\n#### 1,018\n"), Ok(&["1,018"]));
        check(Some(""), false, json!("#### as it stands"), Ok(&["#### as it stands"]));
        let solution = json!("\\boxed{0} or $\\boxed{\\left\\{\\frac{1}{2}\\right\\}} \\mathrm{~cm}$");
        check(None, true, solution, Ok(&["\\left\\{\\frac{1}{2}\\right\\}"]));
    }
}
