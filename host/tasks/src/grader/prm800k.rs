//! The second normaliser of tinker-cookbook's `math_grading.py`, from PRM800K's `grading/grader.py`: LaTeX
//! becomes text, units and spaces are dropped, and mixed numbers become sums. It compares no answers.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::latex_text::{Untextable, latex_to_text};
use super::pattern;
use super::python::{digits, float, whole};

/// Units to drop, with `s` or `es` and a power after them.
const UNITS: [&str; 16] = [
    "degree",
    "cm",
    "centimeter",
    "meter",
    "mile",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "foot",
    "feet",
    "inch",
    "yard",
];

/// Brackets of a tuple or interval.
const BRACKETS: [char; 4] = ['(', ')', '[', ']'];

/// `_normalize`. LaTeX that upstream cannot convert to text stays LaTeX.
pub fn prm800k(answer: &str) -> Result<String, Untextable> {
    static TEXT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\\text\{(.+?)\}\n?$"));
    static DROPPED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let units = UNITS.iter().map(|unit| pattern(&format!(r"{unit}(es)?(s)? *(\^[0-9]+)?")));
        units.chain([pattern(r"\^ *\\circ")]).collect()
    });
    static THIN_SPACED: LazyLock<Regex> = LazyLock::new(|| pattern(r",\\! *"));
    static MINUS: LazyLock<Regex> = LazyLock::new(|| pattern("- *"));
    static MIXED: LazyLock<Regex> = LazyLock::new(|| pattern("([0-9]) +([0-9])"));

    let inside = TEXT.captures(answer).and_then(|found| found.get(1));
    let text = inside.map_or(answer, |inside| inside.as_str());
    let text = text.replace(r"\%", "%").replace(r"\$", "$").replace(['$', '%'], "");
    let text = text.replace(" or ", " , ").replace(" and ", " , ");
    let text = text.replace("million", "*10^6").replace("billion", "*10^9");
    let mut text = text.replace("trillion", "*10^12");
    for dropped in DROPPED.iter() {
        text = replaced(dropped, text, "");
    }
    let bare = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(&text);
    text = THIN_SPACED.replace_all(bare, "").into_owned();
    if let Some(number) = float(&text).filter(|number| whole(*number)) {
        text = digits(number.round());
    }
    if text.contains('\\') {
        match latex_to_text(&text) {
            Ok(plain) => text = plain,
            Err(Untextable::Raised) => {}
            Err(Untextable::TooMuch) => return Err(Untextable::TooMuch),
        }
    }
    text = replaced(&MINUS, text, "-");
    text = replaced(&MIXED, text, "$1+$2");
    text = text.replace([' ', '{', '}'], "").to_lowercase();
    if is_int(&text)
        && let Some(number) = float(&text.replace(',', ""))
    {
        // Truncated, while the step above rounds: upstream does both.
        text = digits(number);
    }
    Ok(text)
}

/// `split_tuple`: returns the parts of a tuple or interval, or the single answer.
pub fn split_tuple(answer: &str) -> Vec<String> {
    let answer = without_commas(answer);
    if answer.is_empty() {
        return Vec::new();
    }
    let inside = answer.strip_prefix(BRACKETS).and_then(|rest| rest.strip_suffix(BRACKETS));
    match inside.filter(|inside| !inside.is_empty() && !inside.contains(BRACKETS)) {
        Some(inside) => inside.split(',').map(|part| part.trim().to_owned()).collect(),
        None => vec![answer],
    }
}

/// `_str_is_int`: whether it is an integer, thousands commas allowed.
pub(super) fn is_int(text: &str) -> bool {
    float(&without_commas(text)).is_some_and(whole)
}

/// `_is_frac`: whether it is roughly one integer over another.
pub(super) fn is_fraction(text: &str) -> bool {
    static FRACTION: LazyLock<Regex> = LazyLock::new(|| pattern(r"^-?[0-9]+.?/0*[1-9][0-9]*.?\n?$"));
    FRACTION.is_match(text)
}

/// `_strip_properly_formatted_commas`: removes the commas within numbers, but not those of tuples.
fn without_commas(text: &str) -> String {
    static COMMA: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d),(\d\d\d)($|\D)"));
    let mut text = text.to_owned();
    // A match consumes the next comma, so that every other comma of a number is removed first, which joins
    // its groups. From four groups on, some commas then precede more than three digits, and remain.
    while let Cow::Owned(next) = COMMA.replace_all(&text, "$1$2$3") {
        text = next;
    }
    text
}

fn replaced(what: &Regex, text: String, by: &str) -> String {
    match what.replace_all(&text, by) {
        Cow::Owned(replaced) => replaced,
        Cow::Borrowed(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_normalised() {
        for (answer, expected) in [
            (r"\text{5 or 6}", "5,6"),
            (r"7 \frac{3}{4}", "7+3/4"),
            ("12 feet^2", "12"),
            ("2.0000000001", "2"),
            ("1,234,567", "1234567"),
            ("1,234,567,890", "1,234,567,890"),
            (r"\sqrt", r"\sqrt"),
            ("{- 3}", "-3"),
            ("3 million", "3*10^6"),
            ("INF", "inf"),
            ("", ""),
        ] {
            assert_eq!(prm800k(answer).as_deref(), Ok(expected), "{answer}");
        }
    }

    #[test]
    fn units_are_dropped() {
        let units = "degrees cm centimeter meters miles second minutes hours days weeks month years foot feet \
                     inches yards^2";
        for unit in units.split(' ') {
            assert_eq!(prm800k(&format!("3 {unit}")).as_deref(), Ok("3"), "{unit}");
        }
    }

    #[test]
    fn tuples_are_split_and_numbers_are_not() {
        assert_eq!(split_tuple("(1,000,2]"), ["1000", "2"]);
        assert_eq!(split_tuple("1,2"), ["1,2"]);
        assert_eq!(split_tuple("((1,2),3)"), ["((1,2),3)"]);
        assert_eq!(split_tuple("()"), ["()"]);
        assert!(split_tuple("").is_empty());
        assert_eq!(split_tuple("1,234,567,890"), ["1234,567890"]);
    }

    #[test]
    fn fractions_and_integers_are_told_apart() {
        assert!(is_fraction("-1/2") && is_fraction("12/040") && !is_fraction("1/0") && !is_fraction("x/2"));
        assert!(is_int("1,000") && is_int("2.00000001") && !is_int("1,00") && !is_int("inf"));
    }
}
