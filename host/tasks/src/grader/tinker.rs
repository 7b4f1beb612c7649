//! Equality of answers in tinker-cookbook's `math_grading.py` (`grade_answer`, its default grader), after
//! the string rules of MATH and of PRM800K. Pilot-Commit trains with the same file, as
//! `verl/utils/reward_score/tinker_utils.py`.
//!
//! Nothing here does algebra. Where texts differ, upstream asks sympy, but only for expressions that
//! `should_allow_eval` passes. That function requires what PRM800K's original forbids: both a tower of
//! powers and an exponent of two digits. So sympy decides none of the recorded cases. Where it would
//! decide, an answer is ungradable here.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use super::hendrycks::mathd;
use super::latex_text::Untextable;
use super::prm800k::{is_fraction, is_int, prm800k, split_tuple};
use super::{Grader, Ungradable, boxed, pattern};

/// Returns whether the box that closes last equals `gold`, and its content.
pub(super) fn grade<'a>(gold: &str, answer: &'a str) -> Result<(bool, Option<&'a str>), Ungradable> {
    let found = boxed::tinker(answer);
    let correct = match found {
        Some(found) => equal(gold, found)?,
        None => false,
    };
    Ok((correct, found))
}

/// `grade_answer`.
fn equal(gold: &str, given: &str) -> Result<bool, Ungradable> {
    if mathd(gold) == mathd(given) {
        return Ok(true);
    }
    let (gold, given) = (normalised(gold)?, normalised(given)?);
    if gold == given {
        return Ok(true);
    }
    if given.is_empty() {
        return Ok(false);
    }
    let (golds, givens) = (split_tuple(&gold), split_tuple(&given));
    let ends = |text: &str| (text.chars().next(), text.chars().next_back());
    if golds.len() != givens.len() || (golds.len() > 1 && ends(&gold) != ends(&given)) {
        return Ok(false);
    }
    for (gold, given) in golds.iter().zip(&givens) {
        let same = if is_fraction(gold) && is_fraction(given) {
            // A fraction that is not reduced is wrong.
            gold == given
        } else if is_int(gold) == is_int(given) {
            equal_by_algebra(gold, given)?
        } else {
            false
        };
        if !same {
            return Ok(false);
        }
    }
    // Without parts there is no right answer.
    Ok(!golds.is_empty())
}

fn normalised(answer: &str) -> Result<String, Ungradable> {
    prm800k(answer).map_err(|_: Untextable| Ungradable::too_much(Grader::Tinker, answer))
}

/// `are_equal_under_sympy`: false for expressions that are not evaluated, even if their texts are equal.
fn equal_by_algebra(gold: &str, given: &str) -> Result<bool, Ungradable> {
    if goes_to_sympy(&format!("({gold})-({given})")) {
        return Err(Ungradable::algebra(gold, given));
    }
    Ok(false)
}

/// `should_allow_eval`, whose last line requires all of its `BAD_REGEXES` instead of none.
fn goes_to_sympy(difference: &str) -> bool {
    static TOWER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\^[0-9]+\^"));
    static LARGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\^[0-9][0-9]+"));
    let bare = difference.replace("sqrt", "").replace("frac", "");
    let letters: HashSet<char> = bare.chars().filter(|c| c.is_alphabetic()).collect();
    letters.len() <= 2
        && !difference.contains("^{")
        && !difference.contains("^(")
        && TOWER.is_match(difference)
        && LARGE.is_match(difference)
        && may_be_an_expression(difference)
}

/// False for text that Python cannot parse or subtract, which upstream grades wrong: equations, tuples,
/// lists, degrees, an unmatched bracket.
fn may_be_an_expression(text: &str) -> bool {
    let mut open = 0_usize;
    text.chars().all(|c| match c {
        '(' => {
            open += 1;
            true
        }
        ')' => {
            let matched = open > 0;
            open = open.saturating_sub(1);
            matched
        }
        _ => !matches!(c, ',' | ';' | '=' | '[' | ']' | '\\' | '∘'),
    }) && open == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_equal_as_text_after_either_normaliser() {
        for (gold, given) in [
            (r"\frac{1}{2}", r"\dfrac12"),
            ("1/2", r"\frac{1}{2}"),
            ("0.5", "1/2"),
            ("(1, 2)", r"\left( 1,2 \right)"),
            ("10000", r"10{,}000"),
            ("36", r"36^\circ"),
            ("Monday", r"\text{monday}"),
        ] {
            assert_eq!(equal(gold, given), Ok(true), "{gold} {given}");
        }
    }

    #[test]
    fn what_only_algebra_could_tell_is_wrong_as_upstream_has_it() {
        for (gold, given) in
            [("2x", "x+x"), ("1/2", "2/4"), ("(1,2)", "[1,2)"), ("(x,1)", "(x,2)"), ("5", "")]
        {
            assert_eq!(equal(gold, given), Ok(false), "{gold} {given}");
        }
        // Parts that are equal as text are asked about all the same, and so are wrong.
        assert_eq!(equal("(a,b+c)", "(a,c+b)"), Ok(false));
    }

    #[test]
    fn what_would_go_to_sympy_is_not_gradable() {
        assert!(matches!(equal("x^2^3+y^10", "y^10+x^2^3"), Err(Ungradable::Algebra { .. })));
        assert_eq!(equal("x^2+y^10", "y^10+x^2"), Ok(false));
        assert_eq!(equal("5", "x^2^10"), Ok(false));
        for unparsable in ["x^2^3+y^10=1", "(x^2^3+y^10", "x^2^3^{12}^{\\circ}", "x^2^3,y^10;1"] {
            assert_eq!(equal("x^2", unparsable), Ok(false), "{unparsable}");
        }
    }
}
