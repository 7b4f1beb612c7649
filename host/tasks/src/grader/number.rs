//! Numbers as answers: the last one in what the text gives as its answer, compared digit by digit, so
//! that no number is too large. It knows no fractions, powers or words.

use std::sync::LazyLock;

use regex::Regex;

use super::{boxed, pattern};

/// Which numbers count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    /// Only those without digits other than 0 after the point.
    Integer,
    /// All.
    Decimal,
}

/// What a gold answer says: the number that is all of it, after a `####` if there is one (GSM8K's
/// solutions end so), with or without a dollar sign. Nothing if it is no number, or not of this kind.
pub(super) fn gold(text: &str, kind: NumberKind) -> Option<Number> {
    let text = text.rsplit_once("####").map_or(text, |(_, last)| last).trim();
    let found = numbers(text).last()?;
    let rest = text.replacen(found, "", 1);
    if !matches!(rest.as_str(), "" | "$") {
        return None;
    }
    Number::read(found).filter(|number| kind == NumberKind::Decimal || number.after.is_empty())
}

/// Whether the last number of the answer is `gold`, and what it is. The answer is what the last
/// `\boxed{…}` holds; without a box, what follows the last `####`; without that, the line after the
/// last `Answer:`; without that, all of the text.
pub(super) fn grade<'a>(gold: &Number, answer: &'a str) -> (bool, Option<&'a str>) {
    let found = numbers(given(answer)).last();
    (found.and_then(Number::read).as_ref() == Some(gold), found)
}

/// What the text gives as its answer.
fn given(text: &str) -> &str {
    boxed::dapo(text)
        .or_else(|| Some(text.rsplit_once("####")?.1))
        .or_else(|| answer_line(text))
        .unwrap_or(text)
}

/// The line after the last `Answer:`, on the same line or the next that isn't empty.
pub(super) fn answer_line(text: &str) -> Option<&str> {
    static LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)answer\**\s*:\**\s*([^\n]+)"));
    Some(LABEL.captures_iter(text).last()?.get(1)?.as_str())
}

/// A number, by its digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    /// Digits before the point, without zeros in front.
    before: String,
    /// Digits after it, without zeros at the end.
    after: String,
}

impl Number {
    /// From what [`numbers`] finds.
    fn read(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix(['-', '−']) {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (before, after) = text.split_once('.').unwrap_or((text, ""));
        let before = before.replace(',', "").trim_start_matches('0').to_owned();
        let after = after.trim_end_matches('0').to_owned();
        // A version, a date.
        if after.contains('.') {
            return None;
        }
        let negative = negative && !(before.is_empty() && after.is_empty());
        Some(Self { negative, before, after })
    }
}

/// The numbers in a text: digits with commas and points among them, and a minus sign if it follows no
/// letter, digit or closing bracket. Commas that don't group thousands end a number: `1,2` is two.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    static RUN: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9][0-9.,]*|\.[0-9]+"));
    static GROUPED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$"));
    RUN.find_iter(text).map(move |run| {
        let digits = run.as_str().trim_end_matches(['.', ',']);
        let mut start = run.start();
        if digits.contains(',') && !GROUPED.is_match(digits) {
            start += digits.rfind(',').map_or(0, |at| at + 1);
        }
        let end = run.start() + digits.len();
        let mut before = text[..start].chars();
        match before.next_back() {
            Some(sign @ ('-' | '−'))
                if !before.next_back().is_some_and(|c| c.is_alphanumeric() || c == ')') =>
            {
                &text[start - sign.len_utf8()..end]
            }
            _ => &text[start..end],
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_the_answer_counts() {
        let integer = gold("So 3 + 4 = 7.\n#### 1,234", NumberKind::Integer).expect("a number");
        for (answer, found) in [
            (r"7 of them, so \boxed{1{,}234 = 1,234} in 9 days", "1,234"),
            ("#### 1234\n", "1234"),
            ("**Answer:** $1234$.\nI took 3 steps.", "1234"),
            ("Answer:\n1,234.00 dollars", "1,234.00"),
            ("it is 5, 6 or 01234.", "01234"),
        ] {
            assert_eq!(grade(&integer, answer), (true, Some(found)), "{answer}");
        }
        for (answer, found) in [("1234.5", Some("1234.5")), ("-1234", Some("-1234")), ("none", None)] {
            assert_eq!(grade(&integer, answer), (false, found), "{answer}");
        }
        assert_eq!(grade(&integer, r"1234 \boxed{}"), (false, None));
    }

    #[test]
    fn signs_commas_and_points_are_read() {
        let all = |text| numbers(text).collect::<Vec<_>>();
        assert_eq!(all("x=-5, 10-3, (2)-1 and 1,2 or 12,34,567."), ["-5", "10", "3", "2", "1", "2", "567"]);
        assert_eq!(all("−.5 1,000,000.25 3.14."), ["−.5", "1,000,000.25", "3.14"]);
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
