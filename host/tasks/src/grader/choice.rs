//! Letters as answers to multiple-choice questions. The number and the content of the choices are not known
//! here.

use std::sync::LazyLock;

use regex::Regex;

use super::number::answer_line;
use super::{boxed, pattern};

/// Parses a gold answer's letter: `B`, `b`, `(B)`, `B.`. `None` for any other text.
pub(super) fn gold(text: &str) -> Option<char> {
    static ALONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*\(?([A-Za-z])\)?[.:]?\s*$"));
    first(&ALONE, text).map(|(letter, _)| letter)
}

/// Returns whether the answer's letter is `gold`, and the letter. It is looked for in the last `\boxed{…}`,
/// then in the line after the last `Answer:`, then as the last capital in round brackets, then as a capital
/// that is the last word of the text.
pub(super) fn grade(gold: char, answer: &str) -> (bool, Option<&str>) {
    let given = boxed::last(answer).or_else(|| answer_line(answer));
    let found = given.map_or_else(|| in_running_text(answer), leading);
    (found.is_some_and(|(letter, _)| letter == gold), found.map(|(_, text)| text))
}

/// Returns the letter that a short answer starts with or consists of: a capital (`\text{(B)}`, `B. Paris`),
/// or a small one if no text follows.
fn leading(text: &str) -> Option<(char, &str)> {
    // Brackets, stars, dollar signs, and macros that set text.
    const OPENING: &str = r"(?:[\s*$({\[]|\\[a-z]+\s*\{|\\\()*";
    static CAPITAL: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"^{OPENING}([A-Z])(?:[^A-Za-z0-9'’]|$)")));
    static SMALL: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"^{OPENING}([a-z])[\s*$)}}\].:]*(?:\\\))?[\s.]*$")));
    first(&CAPITAL, text).or_else(|| first(&SMALL, text))
}

fn in_running_text(text: &str) -> Option<(char, &str)> {
    static BRACKETED: LazyLock<Regex> = LazyLock::new(|| pattern(r"\(([A-Z])\)"));
    static LAST: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:^|[^A-Za-z0-9'’\\])([A-Z])[^A-Za-z0-9]*$"));
    let bracketed = BRACKETED.captures_iter(text).last().and_then(|found| found.get(1));
    if let Some(found) = bracketed {
        return letter(found.as_str());
    }
    // The pattern ends with the text, so matching its last characters is enough, and cheap. A cut text may
    // begin within a word.
    let tail = end(text);
    let whole = |found: &(char, &str)| tail.len() == text.len() || found.1.as_ptr() != tail.as_ptr();
    first(&LAST, tail).filter(whole)
}

/// Returns the last 64 characters.
fn end(text: &str) -> &str {
    text.char_indices().nth_back(63).map_or(text, |(at, _)| &text[at..])
}

fn first<'a>(what: &Regex, text: &'a str) -> Option<(char, &'a str)> {
    letter(what.captures(text)?.get(1)?.as_str())
}

fn letter(text: &str) -> Option<(char, &str)> {
    Some((text.chars().next()?.to_ascii_uppercase(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_found_where_they_are_given() {
        for answer in [
            r"(A) is out, so \boxed{B}",
            r"\boxed{\text{(B)}}",
            r"$\boxed{b}$",
            "A or C?\nAnswer: B. Paris",
            "**Answer:** (B)",
            "Answer: b",
            "Not (A). It is (B), I think.",
            "So it must be B.",
            "B",
        ] {
            assert!(grade('B', answer).0, "{answer}");
        }
    }

    #[test]
    fn words_are_no_letters() {
        for answer in
            [r"\boxed{Both}", "Answer: Because", "that is what I had before", "PLAN B2", "", "Bob's"]
        {
            assert_eq!(grade('B', answer), (false, None), "{answer}");
        }
        assert_eq!(
            grade('B', &format!("PLANB{}", ".".repeat(63))),
            (false, None),
            "cut in the middle of a word"
        );
        assert_eq!(grade('B', r"(B) \boxed{C}"), (false, Some("C")));
        for answer in
            [r"(B) \boxed{}", r"(B) \boxed{B", r"\boxed{B} \boxed", "(B)\nAnswer:", "Answer: B\nAnswer: "]
        {
            assert_eq!(grade('B', answer), (false, None), "cut off: {answer}");
        }
    }

    #[test]
    fn gold_is_one_letter() {
        for text in ["B", " b ", "(B)", "B.", "B)"] {
            assert_eq!(gold(text), Some('B'), "{text}");
        }
        for text in ["", "BC", "12", "B or C", "é"] {
            assert_eq!(gold(text), None, "{text}");
        }
    }
}
