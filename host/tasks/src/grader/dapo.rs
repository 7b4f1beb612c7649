//! The two graders of verl's `math_dapo.py`: DAPO's own reads the line after `Answer:` and normalises it
//! like Minerva; the strict one compares a box character by character.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::{boxed, pattern};

/// Number of last characters of a solution that count: `compute_score`.
const TAIL: usize = 300;
/// The same for the strict box: `is_correct_strict_box`.
const BOX_TAIL: usize = 100;

/// Texts that are replaced first, in this order: `SUBSTITUTIONS`.
const REPLACED: [(&str, &str); 10] = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    (r"\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
];

/// Texts that are dropped next, in this order: `REMOVED_EXPRESSIONS`.
#[rustfmt::skip]
const DROPPED: [&str; 41] = [
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", r"\ldots", "sue",
    "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals",
    "edges", "students", "childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}",
    r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;",
    r",\!", "{,}", "\"", r"\dots",
];

/// Returns whether the last `Answer:` line equals `gold` after normalisation, and the normalised line:
/// `is_correct_minerva`.
pub(super) fn grade_line(gold: &str, answer: &str) -> (bool, Option<String>) {
    static LINE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Answer\s*:\s*([^\n]+)"));
    let found = LINE.captures_iter(tail(answer, TAIL)).last().map(|found| minerva(&found[1]));
    (found.as_ref().is_some_and(|found| *found == minerva(gold)), found)
}

/// Returns whether the last box in the last 100 characters equals `gold` literally, and its content:
/// `is_correct_strict_box`.
pub(super) fn grade_box<'a>(gold: &str, answer: &'a str) -> (bool, Option<&'a str>) {
    let found = boxed::dapo(tail(answer, BOX_TAIL));
    (found == Some(gold), found)
}

/// `normalize_final_answer`.
pub fn minerva(answer: &str) -> String {
    static PATTERNS: LazyLock<[(Regex, &str); 7]> = LazyLock::new(|| {
        [
            (r"(.*?)(\$)(.*?)(\$)(.*)", "$$$3$$"),
            (r"(\\text\{)(.*?)(\})", "$2"),
            (r"(\\textbf\{)(.*?)(\})", "$2"),
            (r"(\\overline\{)(.*?)(\})", "$2"),
            (r"(\\boxed\{)(.*)(\})", "$2"),
            // Shorthand: `\fracab` is `\frac{a}{b}`, `\sqrta` is `\sqrt{a}`.
            (r"(frac)([^{])(.)", "frac{$2}{$3}"),
            (r"(sqrt)([^{])", "sqrt{$2}"),
        ]
        .map(|(text, by)| (pattern(text), by))
    });
    static DIGITS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{Nd}+$"));

    let mut text = answer.rsplit('=').next().unwrap_or(answer).to_owned();
    for (what, by) in REPLACED.into_iter().chain(DROPPED.map(|what| (what, ""))) {
        if text.contains(what) {
            text = text.replace(what, by);
        }
    }
    for (what, by) in PATTERNS.iter() {
        if let Cow::Owned(replaced) = what.replace_all(&text, *by) {
            text = replaced;
        }
    }
    text = text.replace('$', "");
    let plain = text.replace(',', "");
    if DIGITS.is_match(&plain) {
        text = plain;
    }
    text.trim().to_owned()
}

/// Returns the last `count` characters.
fn tail(text: &str, count: usize) -> &str {
    text.char_indices().nth_back(count - 1).map_or(text, |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_solution_counts() {
        let late = |filler: usize| format!("Answer: 5{}", " ".repeat(filler));
        assert_eq!(grade_line("5", &late(291)), (true, Some("5".to_owned())));
        assert_eq!(grade_line("5", &late(292)), (false, None));
        let late = |filler: usize| format!(r"\boxed{{5}}{}", "é".repeat(filler));
        assert_eq!(grade_box("5", &late(91)), (true, Some("5")));
        assert_eq!(grade_box("5", &late(92)), (false, None));
    }

    #[test]
    fn the_last_answer_line_counts() {
        assert_eq!(grade_line("1000", "Answer: 7\nanswer :\n 1,000"), (true, Some("1000".to_owned())));
        assert!(!grade_line("7", "Answer: 7\nAnswer: 8").0);
        // Upstream calls a missing line `[INVALID]`, which no gold answer should be able to match.
        assert_eq!(grade_line("[INVALID]", "none"), (false, None));
    }

    #[test]
    fn a_box_is_compared_as_it_is() {
        assert!(grade_box(r"\frac12", r"\boxed{\frac12}").0);
        assert!(!grade_box(r"\frac12", r"\boxed{\frac{1}{2}}").0);
    }

    #[test]
    fn shorthand_is_written_out() {
        assert_eq!(minerva(r"x = \frac12"), r"\frac{1}{2}");
        assert_eq!(minerva(r"the value is $\sqrt3$ units"), r"\sqrt{3}");
        assert_eq!(minerva(r"12{,}345\text{ cents}"), "12345");
    }
}
