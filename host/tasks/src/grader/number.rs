//! Numbers as answers: finds the number that a text gives as its answer. Numbers are compared by digits, so
//! that none is too large. Fractions, powers and words are not numbers here.

use std::sync::LazyLock;

use regex::Regex;

use super::{boxed, pattern};

/// The kind of number that a gold answer may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    /// Only numbers whose digits after the point are all 0.
    Integer,
    /// All numbers.
    Decimal,
}

/// Parses a gold answer: a number, after `####` if there is one (as in GSM8K's solutions), with or without
/// a dollar sign. `None` if it is not a number, or not of this kind.
pub(super) fn gold(text: &str, kind: NumberKind) -> Option<Number> {
    let text = text.rsplit_once("####").map_or(text, |(_, last)| last).trim();
    let found = numbers(text).last()?;
    let rest = text.replacen(found, "", 1);
    if !matches!(rest.as_str(), "" | "$") {
        return None;
    }
    Number::read(found).filter(|number| kind == NumberKind::Decimal || number.after.is_empty())
}

/// Returns whether the answer's number is `gold`, and the number: that in the last box; without a box, that
/// after the last `####` or `Answer:`, whichever comes later; else the last number of the text. An empty or
/// open box has none, and neither has a marker without text after it.
pub(super) fn grade<'a>(gold: &Number, answer: &'a str) -> (bool, Option<&'a str>) {
    let found = match (boxed::last(answer), hash_line(answer), answer_line(answer)) {
        (Some(inside), _, _) => stated(inside),
        (None, Some(line), label) if label.is_none_or(|l| offset(answer, l) < offset(answer, line)) => {
            starting(line)
        }
        (None, _, Some(line)) => stated(line),
        (None, _, None) => numbers(answer).last().filter(|_| !answer.contains("####")),
    };
    (found.and_then(Number::read).as_ref() == Some(gold), found)
}

/// Returns the line after the last `####` that is not a heading: the rest of its line, or the next line
/// that is not empty. It is empty if the answer was cut off there. A heading begins with words.
fn hash_line(text: &str) -> Option<&str> {
    let heading = |line: &str| {
        line.contains(char::is_alphabetic) && leading(line).is_none() && starting(line).is_none()
    };
    let after: Vec<&str> = text.split("####").skip(1).collect();
    let mut lines = after.iter().rev().filter_map(|after| after.trim_start().split('\n').next());
    lines.find(|line| !heading(line))
}

/// Returns the line after the last `Answer:`.
pub(super) fn answer_line(text: &str) -> Option<&str> {
    static LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)answer\**\s*:\**\s*([^\n]*)"));
    Some(LABEL.captures_iter(text).last()?.get(1)?.as_str())
}

/// Returns the number that a box or a line states: the one that it [starts](starting) with, or else the
/// last of a sentence (`After 2 days 42`) without a formula.
fn stated(text: &str) -> Option<&str> {
    static FORMULA: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"frac|\\sqrt|\^\{?[-0-9a-z]|[0-9]\s*(?:[-+*/×÷·x]|\\(?:times|cdot|div))\s*[0-9]")
    });
    let sentence = || leading(text).is_none() && !text.contains('=') && !FORMULA.is_match(text);
    starting(text).or_else(|| numbers(text).last().filter(|_| sentence()))
}

/// Returns the number at the start of a line, whatever text follows (`42 in 2 ways`), or after its last
/// equals sign. `None` if another number follows in a list or an expression: `42, 43`, `6 x 7`.
fn starting(text: &str) -> Option<&str> {
    let alone = |text| leading(text).filter(|(_, after)| stands_alone(after)).map(|(number, _)| number);
    alone(text).or_else(|| alone(text.rsplit_once('=')?.1))
}

/// Returns the number at the start of a text and the text after it. Words like `The answer is`, brackets,
/// stars and dollar signs may precede it.
fn leading(text: &str) -> Option<(&str, &str)> {
    static OPENING: LazyLock<Regex> = LazyLock::new(|| {
        let words = r"(?i:(?:the\s+)?(?:final\s+)?answer(?:\s+is)?)";
        let marks = r"[\s*_`$£€(\[{:≈~]|\\[$(\[,;:! ]|\\(?:text|math)[a-z]*\s*\{|\\approx|\\left[(\[]";
        pattern(&format!("^(?:{marks})*(?:{words})?(?:{marks})*$"))
    });
    let number = numbers(text).next()?;
    let at = offset(text, number);
    OPENING.is_match(&text[..at]).then(|| (number, &text[at + number.len()..]))
}

/// Whether the text after a number describes it, rather than continuing an expression or a list.
fn stands_alone(after: &str) -> bool {
    static GOES_ON: LazyLock<Regex> = LazyLock::new(|| {
        let space = r"(?:[\s_`$€{}\])]|\*\*|\\[,;:! )\]]|\\(?:text|math)[a-z]*|\\right)*";
        let link = r"(?:[-−–+*/^×÷·±,;:]|\\(?:times|cdot|div|pm|mp|to|[lc]?dots)|(?i:x|or|and|to))";
        let number = r"(?:\\?[$£€])?\.?[0-9]";
        let term = r"\\[dt]?frac|\\sqrt|\\pi|√|=|≈|\\approx";
        pattern(&format!(r"^{space}(?:{term}|{number}|{link}{space}[(\[]*[-−]?(?:{number}|{term}))"))
    });
    !GOES_ON.is_match(after)
}

/// A number as digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    /// Digits before the point, without leading zeros.
    before: String,
    /// Digits after the point, without trailing zeros.
    after: String,
}

impl Number {
    /// Parses a text found by [`numbers`].
    fn read(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix(['-', '−']) {
            Some(text) => (true, text.trim_start_matches(['$', '\\'])),
            None => (false, text),
        };
        let (before, after) = text.split_once('.').unwrap_or((text, ""));
        let before: String = before.chars().filter(char::is_ascii_digit).collect();
        let before = before.trim_start_matches('0').to_owned();
        let after = after.trim_end_matches('0').to_owned();
        // A version or a date.
        if after.contains('.') {
            return None;
        }
        let negative = negative && !(before.is_empty() && after.is_empty());
        Some(Self { negative, before, after })
    }
}

/// Returns the numbers in a text: digits with points and commas, also in LaTeX (`1{,}234`, `1,\!234`,
/// `1\,234`). A minus sign belongs to a number, even before a dollar sign, unless it follows a letter,
/// digit or closing bracket. A comma that does not group thousands ends a number: `1,2` is two.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    const COMMA: &str = r"(?:\{,\}|,\\!|\\,|,)";
    static RUN: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"[0-9]+(?:(?:{COMMA}|\.+)[0-9]+)*|\.[0-9]+")));
    static GROUPED: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"^[0-9]{{1,3}}(?:{COMMA}[0-9]{{3}})+(?:\.[0-9]+)?$")));
    static COMMAS: LazyLock<Regex> = LazyLock::new(|| pattern(COMMA));
    RUN.find_iter(text).flat_map(move |run| {
        let run = run.as_str();
        let parts = if GROUPED.is_match(run) { vec![run] } else { COMMAS.split(run).collect() };
        parts.into_iter().map(move |part| with_sign(text, part))
    })
}

/// Returns a number in a text with the minus sign before it.
fn with_sign<'a>(text: &'a str, number: &'a str) -> &'a str {
    let start = offset(text, number);
    let before = text[..start].trim_end_matches(['$', '\\']);
    match before.strip_suffix(['-', '−']) {
        Some(rest) if !rest.ends_with(|c: char| c.is_alphanumeric() || c == ')') => {
            &text[rest.len()..start + number.len()]
        }
        _ => number,
    }
}

/// Returns the offset of a part of a text.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_is_stated_counts() {
        for (answer, found) in [
            (r"7 of them, so \boxed{1{,}234 = 1,234} in 9 days", "1,234"),
            (r"\boxed{1{,}234}", "1{,}234"),
            (r"\boxed{1,\!234\text{ in 2 ways}}", r"1,\!234"),
            (r"\boxed{\text{1234 (of 5)}}", "1234"),
            (r"\boxed{2 \times 617 = 1234\text{ m}^2}", "1234"),
            (r"\boxed {1\,234}$, 3 of 4", r"1\,234"),
            (r"$\boxed 1234$, 3 of 4", "1234"),
            (r"\boxed{\text{After 3 days } 1234}", "1234"),
            ("#### 1234\n", "1234"),
            ("#### 1234 for gold, in 2 ways", "1234"),
            ("####\n$1,234. Check: 2 x 617", "1,234"),
            ("#### 7\n#### **1234** (2 x 617)", "1234"),
            ("#### 2 x 617 = 1234", "1234"),
            ("#### Step 3: add 1\n**Answer:** 1234", "1234"),
            ("**Answer:** 1234\n\n#### Check\nIt is 2 x 617.", "1234"),
            ("#### 1234\n#### Why 2 x 617?", "1234"),
            ("Answer: 7\n#### The answer is 1234, of 5", "1234"),
            ("**Answer:** $1234$.\nI took 3 steps.", "1234"),
            ("Answer: 1234 (in 2 steps)", "1234"),
            ("Answer:\n1,234.00 dollars", "1,234.00"),
            ("Answer: The answer is 1234 in 2 ways", "1234"),
            ("Final answer: x = 1234, and y is 3", "1234"),
            ("Answer: in 2 hours it goes 1234 km/h", "1234"),
            ("it is 5, 6 or 01234.", "01234"),
        ] {
            let gold = gold("So 3 + 4 = 7.\n#### 1,234", NumberKind::Integer).expect("a number");
            assert_eq!(grade(&gold, answer), (true, Some(found)), "{answer}");
        }
    }

    #[test]
    fn what_states_no_number_is_wrong() {
        let integer = gold("6", NumberKind::Integer).expect("a number");
        for (answer, found) in
            [("6.5", Some("6.5")), ("-6", Some("-6")), ("-$6", Some("-$6")), ("none", None)]
        {
            assert_eq!(grade(&integer, answer), (false, found), "{answer}");
        }
        // Cut off, or empty.
        for answer in [
            r"6 \boxed{}",
            r"\boxed{6} \boxed{",
            r"So it is \boxed{6",
            r"\boxed{6}, or \boxed{6\text{ of",
            r"It is 6. \boxed",
            "#### 6\n####",
            "6 x 1. ####",
            "#### 6\n#### $",
            "Answer: 6\nAnswer:",
            "#### Step 6\nAdd 6",
            "It is 6.\n**Answer:** ",
        ] {
            assert_eq!(grade(&integer, answer), (false, None), "{answer}");
        }
        // Lists and expressions.
        for answer in [
            r"\boxed{6, 7}",
            r"\boxed{6 \times 7}",
            r"\boxed{\frac{42}{6}}",
            r"\boxed{\frac{6}{7}}",
            r"\boxed{6\sqrt{2}}",
            r"\boxed{6^{2}}",
            r"\boxed{x^6}",
            r"\boxed{6 \text{ or } 7}",
            r"\boxed{6 \pm 1}",
            "#### 6/7",
            "#### 6 x (7)",
            "#### 42 = 6 x 7",
            "Answer: 6 to 7",
            "Answer: 6-7 hours",
            "Answer: it takes 42 / 6",
        ] {
            assert_eq!(grade(&integer, answer), (false, None), "{answer}");
        }
    }

    #[test]
    fn signs_commas_and_points_are_read() {
        let all = |text| numbers(text).collect::<Vec<_>>();
        assert_eq!(
            all("x=-5, 10-3, (2)-1 and 1,2 or 12,34,567."),
            ["-5", "10", "3", "2", "1", "1", "2", "12", "34", "567"]
        );
        assert_eq!(all("−.5 1,000,000.25 3.14. -$7 a-$8"), ["−.5", "1,000,000.25", "3.14", "-$7", "8"]);
        assert_eq!(all(r"1{,}000,\!000 1{,}2 3\,"), [r"1{,}000,\!000", "1", "2", "3"]);
    }

    #[test]
    fn numbers_are_equal_by_value() {
        let decimal = |text| gold(text, NumberKind::Decimal);
        assert_eq!(decimal("$0.50"), decimal(".5"));
        assert_eq!(decimal("-0"), decimal("0.0"));
        assert_ne!(decimal("-1"), decimal("1"));
        assert!(decimal("1").is_some());
        for nothing in ["", "five", "5 apples", "1/2", "1,2", "1.2.3"] {
            assert_eq!(decimal(nothing), None, "{nothing}");
        }
        assert_eq!(gold("2.5", NumberKind::Integer), None);
        let long = "9".repeat(5000);
        assert_eq!(grade(&gold(&long, NumberKind::Integer).expect("a number"), &long), (true, Some(&*long)));
    }
}
