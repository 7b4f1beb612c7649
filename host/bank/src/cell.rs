//! Parsing of the cells of a row.

use allot_component::sha256;
use serde_json::{Map, Value};

/// Longest prompt name kept as it is, in bytes. Longer names, usually whole questions, are hashed.
const NAME: usize = 40;

/// Returns the cell of a column, unless it is null. Dots in the name reach into structs.
pub(super) fn cell<'r>(row: &'r Map<String, Value>, column: &str) -> Option<&'r Value> {
    // The name itself may contain dots.
    if let Some(value) = row.get(column) {
        return Some(value).filter(|value| !value.is_null());
    }
    let (first, rest) = column.split_once('.')?;
    cell(row.get(first)?.as_object()?, rest)
}

/// Parses a finite number. `true` and `false` are 1 and 0, and text may hold a number.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

/// Parses a whole number from 0 to `u32::MAX`.
pub(super) fn whole(value: &Value) -> Option<u32> {
    let number = number(value)?;
    (number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as u32)
}

/// Parses whether a rollout was right: true or false, a number (right from `right` on), or a word. `C`,
/// `I`, `P` and `N` are inspect's correct, incorrect, partially correct and no answer.
pub(super) fn verdict(value: &Value, right: f64) -> Option<bool> {
    if let Value::Bool(yes) = value {
        return Some(*yes);
    }
    if let Some(number) = number(value) {
        return Some(number >= right);
    }
    match value.as_str()?.trim().to_lowercase().as_str() {
        "true" | "c" | "correct" | "right" | "yes" | "pass" | "passed" => Some(true),
        "false" | "i" | "p" | "n" | "incorrect" | "wrong" | "no" | "fail" | "failed" => Some(false),
        _ => None,
    }
}

/// Returns the name of a prompt: a short text or a number as it is, anything else as a hash.
pub(super) fn name(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if text.trim().is_empty() => None,
        Value::String(text) if text.len() <= NAME && !text.contains(char::is_control) => Some(text.clone()),
        Value::String(text) => Some(hashed(text)),
        other => Some(hashed(&other.to_string())),
    }
}

/// Counts the characters of an answer: of a text, or of the messages of a chat.
pub(super) fn characters(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(characters).sum(),
        Value::Object(message) => message.get("content").map_or(0, characters),
        _ => 0,
    }
}

/// Returns the first 128 bits of a SHA-256 in hex: enough to tell a billion texts apart.
fn hashed(text: &str) -> String {
    sha256(text)[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_found_in_structs_and_under_names_with_dots() {
        let row = json!({"a": {"b": {"c": 1}}, "x.y": 2, "null": null});
        let row = row.as_object().expect("it is one");
        assert_eq!(cell(row, "a.b.c"), Some(&json!(1)));
        assert_eq!(cell(row, "x.y"), Some(&json!(2)));
        assert_eq!((cell(row, "null"), cell(row, "a.z"), cell(row, "no")), (None, None, None));
    }

    #[test]
    fn numbers_and_verdicts_are_read_as_people_write_them() {
        assert_eq!(number(&json!(" 1.5 ")), Some(1.5));
        assert_eq!((number(&json!("inf")), number(&json!("x")), number(&json!([1]))), (None, None, None));
        assert_eq!((whole(&json!(3.0)), whole(&json!(3.5)), whole(&json!(-1))), (Some(3), None, None));
        for (value, told) in
            [(json!("C"), true), (json!("I"), false), (json!(0.4), false), (json!("0.5"), true)]
        {
            assert_eq!(verdict(&value, 0.5), Some(told), "{value}");
        }
        assert_eq!(verdict(&json!("perhaps"), 0.5), None);
        // What is said outright is not a number to compare.
        assert_eq!((verdict(&json!(true), 2.0), verdict(&json!(false), 0.0)), (Some(true), Some(false)));
    }

    #[test]
    fn a_question_is_called_by_a_hash_and_a_number_by_itself() {
        assert_eq!(name(&json!(12)).as_deref(), Some("12"));
        assert_eq!(name(&json!("gsm8k/7")).as_deref(), Some("gsm8k/7"));
        assert_eq!(name(&json!([{"role": "user", "content": "1+1"}])).map(|name| name.len()), Some(32));
        assert_eq!((name(&json!("  ")), name(&Value::Null)), (None, None));
    }
}
