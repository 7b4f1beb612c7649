//! JSON as Python writes it: with `NaN`, `Infinity` and `-Infinity`, and with half a surrogate pair in text
//! that was cut within a character.
//!
//! JSON has neither, and serde_json rejects both. A rejected text is parsed again with marks of the same
//! length in their places. Any other error in the JSON remains an error, at the same line and column.

use serde_json::Value;

use super::row::Fault;

/// Marks a number that JSON does not have: text of this character, as long as the number. A text with this
/// character is not parsed a second time.
const NUMBER: char = '\u{7f}';

/// Marks half of a surrogate pair, under the same condition.
const HALF: char = '\u{fdd0}';

/// Description of text with half a surrogate pair.
const HALVED: &str = "text with half of a surrogate pair (such as `\\ud83d`), which is not a character";

/// Numbers that JSON does not have, each with its mark of the same length.
const NUMBERS: [(&str, &str); 3] =
    [("NaN", "\"\u{7f}\""), ("Infinity", "\"\u{7f}nfini\""), ("-Infinity", "\"\u{7f}Infini\"")];

/// A parsed value and its faults.
#[derive(Debug, PartialEq)]
pub(super) struct Parsed {
    /// Numbers that JSON does not have are null; half surrogate pairs are U+FFFD.
    pub value: Value,
    pub faults: Vec<Fault>,
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Parsed, serde_json::Error> {
    let first = match serde_json::from_str(text) {
        Ok(value) => return Ok(Parsed { value, faults: Vec::new() }),
        Err(error) => error,
    };
    let Some(marked) = marked(text) else { return Err(first) };
    let mut value = serde_json::from_str(&marked)?;
    let mut faults = Vec::new();
    if unmarked(&mut value, "", &mut faults) { Ok(Parsed { value, faults }) } else { Err(first) }
}

/// Returns the text with marks; `None` if there is nothing to mark, or it contains the marks already.
fn marked(text: &str) -> Option<String> {
    if text.contains([NUMBER, HALF]) {
        return None;
    }
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(first) = rest.chars().next() {
        let (written, read) = match first {
            '\\' if quoted => escape(rest),
            '"' => {
                quoted = !quoted;
                (None, 1)
            }
            'N' | 'I' | '-' if !quoted => match NUMBERS.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, mark)) => (Some(*mark), name.len()),
                None => (None, 1),
            },
            other => (None, other.len_utf8()),
        };
        let read = read.min(rest.len());
        marked.push_str(written.unwrap_or(&rest[..read]));
        rest = &rest[read..];
    }
    (marked != text).then_some(marked)
}

/// Returns the mark for the escape at the start of a text, if it needs one, and the escape's length.
fn escape(text: &str) -> (Option<&'static str>, usize) {
    let unit = |from: usize| -> Option<u32> {
        let digits = text.get(from..from + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    match (unit(0), unit(6)) {
        (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => (None, 12),
        (Some(0xD800..0xE000), _) => (Some("\\ufdd0"), 6),
        (Some(_), _) => (None, 6),
        // A backslash and the next character.
        (None, _) => (None, 1 + text[1..].chars().next().map_or(0, char::len_utf8)),
    }
}

/// Removes the marks from a value and records their columns. False if a mark is where a number cannot be.
fn unmarked(value: &mut Value, column: &str, faults: &mut Vec<Fault>) -> bool {
    let mut fault = |found| faults.push(Fault { column: column.to_owned(), found });
    match value {
        Value::String(text) if text.starts_with(NUMBER) => {
            fault(match text.len() {
                1 => "NaN",
                6 => "Infinity",
                _ => "-Infinity",
            });
            *value = Value::Null;
        }
        Value::String(text) if text.contains(HALF) => {
            fault(HALVED);
            *text = text.replace(HALF, "\u{fffd}");
        }
        Value::Array(items) => return items.iter_mut().all(|item| unmarked(item, column, faults)),
        Value::Object(fields) => {
            return fields.iter_mut().all(|(name, value)| {
                let dot = if column.is_empty() { "" } else { "." };
                let column = format!("{column}{dot}{name}");
                if name.contains(HALF) {
                    faults.push(Fault { column: column.clone(), found: HALVED });
                }
                !name.starts_with(NUMBER) && unmarked(value, &column, faults)
            });
        }
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, value: Value, faults: &[(&str, &str)]) {
        let parsed = parse(text).expect(text);
        let found: Vec<(&str, &str)> = parsed
            .faults
            .iter()
            .map(|f| (f.column.as_str(), f.found.split(' ').next().unwrap_or("")))
            .collect();
        assert_eq!((parsed.value, found.as_slice()), (value, faults), "{text}");
    }

    #[test]
    fn python_s_numbers_and_halves_are_read_and_noted() {
        check(r#"{"a": 1, "b": "NaN"}"#, json!({"a": 1, "b": "NaN"}), &[]);
        check(
            r#"{"a": NaN, "b": {"c": [1, -Infinity], "d":Infinity}, "e": "\"NaN, \\"}"#,
            json!({"a": null, "b": {"c": [1, null], "d": null}, "e": "\"NaN, \\"}),
            &[("a", "NaN"), ("b.c", "-Infinity"), ("b.d", "Infinity")],
        );
        check(
            r#"{"a": "x\ud83d", "b": "\ud83d\ude00", "c": "\ude00\ud83d\u0041", "d": "\\ud83d"}"#,
            json!({"a": "x\u{fffd}", "b": "😀", "c": "\u{fffd}\u{fffd}A", "d": "\\ud83d"}),
            &[("a", "text"), ("c", "text")],
        );
    }

    #[test]
    fn nothing_else_is_read_that_is_not_json() {
        for text in [
            "{\"a\": NaN,}",
            "{NaN: 1}",
            "{\"a\": NaNs}",
            "{\"a\": nan}",
            "{\"a\": -NaN}",
            "{\"a\": +Infinity}",
            "{'a': NaN}",
            "{\"a\": \"\u{7f}\", \"b\": NaN}",
            "{\"a\": \"\\ud83\"}",
            "{\"a\": \"\\",
            "{\"a\": NaN",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("{\"a\": -Infinity, \"é\": \"\\udfff\", \"b\": tru}").expect_err("it is not JSON");
        assert_eq!((error.line(), error.column()), (1, 42), "as if the rest were JSON");
    }
}
