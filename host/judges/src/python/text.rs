//! Extracts the program from an answer and compares its output. Runs nothing.

use std::borrow::Cow;

use serde_json::Value;

/// The relative tolerance for printed decimal numbers, and the absolute one for all numbers: those of
/// numpy's `allclose`, which verl's harness uses.
pub const TOLERANCE: f64 = 1e-5;
const ABSOLUTE: f64 = 1e-8;
/// 2^53: a float represents every integer up to it exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the program in an answer: its last fenced block marked as Python, else its last block, else the
/// whole answer.
pub fn code(answer: &str) -> Cow<'_, str> {
    let (mut last, mut python) = (None, None);
    let mut rest = answer;
    while let Some(fence) = Fence::opening(rest) {
        let after = &rest[fence.end..];
        // The rest of the opening line is the language.
        let Some((language, body)) = after.split_once('\n') else { break };
        // A block without an end was truncated.
        let (block, behind) = fence.closing(body).map_or((body, ""), |(at, end)| (&body[..at], &body[end..]));
        let language = language.trim().to_lowercase();
        last = Some((block, fence.indent));
        if ["py", "python", "python3"].iter().any(|name| language.split([' ', '{']).next() == Some(*name)) {
            python = last;
        }
        rest = behind;
    }
    match python.or(last) {
        None => Cow::Borrowed(answer),
        Some((block, 0)) => Cow::Borrowed(block),
        Some((block, indent)) => {
            Cow::Owned(block.split_inclusive('\n').map(|line| dedented(line, indent)).collect())
        }
    }
}

/// Returns a line without leading spaces, of which at most `indent` are removed.
fn dedented(line: &str, indent: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    &line[spaces.min(indent)..]
}

/// The opening fence of a code block: three or more backticks or tildes.
struct Fence {
    sign: char,
    count: usize,
    /// The byte offset of its end.
    end: usize,
    /// The spaces before it, if it is the first thing on its line.
    indent: usize,
}

impl Fence {
    /// Returns a text's first fence. Only backticks may follow other text: a tilde is a Python operator.
    fn opening(text: &str) -> Option<Self> {
        let backticks = text.find("```").map(|at| (at, '`'));
        let before = &text[..backticks.map_or(text.len(), |(at, _)| at)];
        let tildes = line_of_tildes(before, 3).map(|(at, _)| (at, '~'));
        let (at, sign) = tildes.or(backticks)?;
        let count = text[at..].chars().take_while(|c| *c == sign).count();
        let line = &text[text[..at].rfind('\n').map_or(0, |newline| newline + 1)..at];
        let indent = if line.trim_start_matches(' ').is_empty() { line.len() } else { 0 };
        Some(Self { sign, count, end: at + count, indent })
    }

    /// Returns where the closing fence begins and ends in the text after the opening fence.
    fn closing(&self, body: &str) -> Option<(usize, usize)> {
        if self.sign == '~' {
            return line_of_tildes(body, self.count);
        }
        let at = body.find(&"`".repeat(self.count))?;
        Some((at, at + body[at..].chars().take_while(|c| *c == '`').count()))
    }
}

/// Returns the start of the first run of `count` tildes at the beginning of a line, and its end.
fn line_of_tildes(text: &str, count: usize) -> Option<(usize, usize)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let inside = line.trim_start_matches(' ');
        let run = inside.chars().take_while(|c| *c == '~').count();
        let at = start + line.len() - inside.len();
        if run >= count {
            return Some((at, at + run));
        }
        start += line.len();
    }
    None
}

/// Returns the text of an input or output. Rows may also have it as a list of lines.
pub fn lines(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(lines).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// Returns whether an output equals the expected one. Words are compared, ignoring white space between
/// them, and numbers by value: integers exactly, decimals within `tolerance` (see [`TOLERANCE`]).
pub fn same(output: &str, wanted: &str, tolerance: f64) -> bool {
    let (mut given, mut wanted) = (output.split_whitespace(), wanted.split_whitespace());
    loop {
        match (given.next(), wanted.next()) {
            (None, None) => return true,
            (Some(given), Some(wanted)) if given == wanted || near(given, wanted, tolerance) => {}
            _ => return false,
        }
    }
}

fn near(given: &str, wanted: &str, tolerance: f64) -> bool {
    let whole = |word: &str| !word.contains(['.', 'e', 'E']);
    let (Some(a), Some(b)) = (number(given), number(wanted)) else { return false };
    match (whole(given), whole(wanted)) {
        // Texts of digits may also be names.
        (true, true) => false,
        (_, true) => b.abs() < EXACT && (a - b).abs() <= ABSOLUTE.min(tolerance),
        _ => (a - b).abs() <= ABSOLUTE.min(tolerance) + tolerance * b.abs(),
    }
}

/// Parses a finite number in digits; rejects `nan` and numbers that overflow a float.
fn number(word: &str) -> Option<f64> {
    let digits = word.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    word.parse().ok().filter(|x: &f64| digits && x.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_its_fences() {
        for (answer, program) in [
            ("x = 1\n", "x = 1\n"),
            ("So:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
            ("~~~python\nx = ~~~1\n~~~\n", "x = ~~~1\n"),
            ("~~~~\nx = '''\n~~~\n'''\n~~~~", "x = '''\n~~~\n'''\n"),
            ("````py\nx = '```'\n````", "x = '```'\n"),
            ("```\n1\n```\nNo:\n```\nx = 1\n```", "x = 1\n"),
            ("```python\nx = 1\n```\nprints\n```text\n1\n```", "x = 1\n"),
            ("```Python3 title\nx = 1\n```\n~~~\n1\n~~~", "x = 1\n"),
            ("1. First\n   ```py\n   if x:\n       y\n\n   ```", "if x:\n    y\n\n"),
            ("Here: ```py\nx = 1```", "x = 1"),
            ("```py\ncut = 1\n", "cut = 1\n"),
            ("~~~py\ncut = 1\n", "cut = 1\n"),
            ("~~~py", "~~~py"),
            ("```", "```"),
        ] {
            assert_eq!(code(answer), program, "{answer}");
        }
    }

    #[test]
    fn numbers_are_compared_by_value_and_other_words_as_they_are() {
        for (output, wanted) in [
            ("1 2\n3", "1 2 3\n"),
            ("0.30000000000000004", "0.3"),
            ("2.0 3.50", "2 3.5"),
            ("5", "5.0"),
            ("5.000000000000001", "5"),
            ("33333.33", "33333.333333"),
            ("-1e3", "-1000.0"),
            ("nan inf", "nan inf"),
        ] {
            assert!(same(output, wanted, TOLERANCE), "{output} for {wanted}");
        }
        for (output, wanted) in [
            ("1 2", "1 2 3"),
            ("1 2 3", "1 2"),
            ("0.31", "0.3"),
            ("100001", "100000"),
            ("5000000.5", "5000000"),
            ("007", "7"),
            ("9007199254740992.0", "9007199254740993"),
            ("0.3x", "0.3"),
            ("inf", "1e999"),
            ("1", "1e999"),
            ("nan", "0.5"),
            ("infinity", "inf"),
            ("", "0.0"),
            ("1_0.0", "10.0"),
        ] {
            assert!(!same(output, wanted, TOLERANCE), "{output} for {wanted}");
        }
        assert!(!same("0.30000000000000004", "0.3", 0.0) && same("0.30", "0.3", 0.0));
        assert_eq!(lines(&serde_json::json!(["1 2", 3])), "1 2\n3");
    }
}
