//! String rules of Hendrycks' MATH in two versions: verl's `math_reward.py` and, with small differences,
//! tinker-cookbook's `math_grading.py`. They do no arithmetic: two answers are equal if their texts are
//! equal after the rules.

use std::sync::LazyLock;

use regex::Regex;

use super::python::{Raised, int};
use super::{boxed, pattern};

/// A version of the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    Verl,
    Tinker,
}

/// Returns whether the last box equals `gold` under the rules, and its content: `compute_score` of verl's
/// `math_reward.py`.
pub(super) fn grade<'a>(gold: &str, answer: &'a str) -> (bool, Option<&'a str>) {
    let found = boxed::hendrycks(answer);
    let equal = found.is_some_and(|found| match (strip(found, Copy::Verl), strip(gold, Copy::Verl)) {
        (Ok(found), Ok(gold)) => found == gold,
        // If a rule fails for either, both are compared unchanged: `is_equiv`.
        _ => found == gold,
    });
    (equal, found)
}

/// `normalize_answer` of tinker-cookbook's `math_grading.py`. If a rule fails, the answer stays as it was
/// before all rules.
pub fn mathd(answer: &str) -> String {
    static TEXT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\\text\{(.+?)\}\n?$"));
    let mut answer = answer.trim();
    if let Some(inside) = TEXT.captures(answer).and_then(|found| found.get(1)) {
        answer = inside.as_str().trim();
    }
    strip(answer, Copy::Tinker).unwrap_or_else(|Raised| answer.to_owned())
}

/// `strip_string` and `_strip_string`, rule by rule: their order matters.
fn strip(text: &str, copy: Copy) -> Result<String, Raised> {
    let mut text = text.replace('\n', "").replace(r"\!", "").replace(r"\\", r"\");
    text = text.replace("tfrac", "frac").replace("dfrac", "frac");
    text = text.replace(r"\left", "").replace(r"\right", "");
    text = text.replace(r"^{\circ}", "").replace(r"^\circ", "").replace(r"\$", "");
    text.truncate(without_units(&text)?.len());
    if copy == Copy::Verl {
        text = text.replace(r"\\%", "");
    }
    // Tinker's version does this twice. The second time may find one that the first time created.
    text = text.replace(r"\%", "");
    if copy == Copy::Tinker {
        text = text.replace(r"\%", "");
    }
    text = text.replace(" .", " 0.").replace("{.", "{0.");
    if text.is_empty() {
        return Ok(text);
    }
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    // `k = 5` means 5, if the name is short and there is one equals sign.
    let value = match text.split_once('=') {
        Some((name, value)) if !value.contains('=') && name.chars().count() <= 2 => value,
        _ => &text,
    };
    text = with_braced_roots(value)?.replace(' ', "");
    text = with_braced_fractions(&text)?;
    if text == "0.5" {
        r"\frac{1}{2}".clone_into(&mut text);
    }
    with_slash_as_fraction(text, copy)
}

/// Returns the text before `\text{ `, which begins a unit.
fn without_units(text: &str) -> Result<&str, Raised> {
    match text.split_once(r"\text{ ") {
        None => Ok(text),
        Some((_, rest)) if rest.contains(r"\text{ ") => Err(Raised),
        Some((before, _)) => Ok(before),
    }
}

/// Writes `\sqrt3` as `\sqrt{3}`.
fn with_braced_roots(text: &str) -> Result<String, Raised> {
    let mut parts = text.split(r"\sqrt");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(r"\sqrt");
        match part.chars().next().ok_or(Raised)? {
            '{' => out.push_str(part),
            first => {
                out.extend(['{', first, '}']);
                out.push_str(&part[first.len_utf8()..]);
            }
        }
    }
    Ok(out)
}

/// Writes `\frac12` and `\frac1{2}` as `\frac{1}{2}`. A `\frac` before a single character leaves the whole
/// text unchanged; one at the end fails.
fn with_braced_fractions(text: &str) -> Result<String, Raised> {
    let mut parts = text.split(r"\frac");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(r"\frac");
        let mut chars = part.chars();
        match (chars.next().ok_or(Raised)?, chars.next()) {
            ('{', _) => {
                out.push_str(part);
                continue;
            }
            (_, None) => return Ok(text.to_owned()),
            (top, Some('{')) => out.extend(['{', top, '}', '{']),
            (top, Some(bottom)) => out.extend(['{', top, '}', '{', bottom, '}']),
        }
        out.push_str(chars.as_str());
    }
    Ok(out)
}

/// Writes `3/4` as `\frac{3}{4}`. If Python reads both as integers but would write them differently
/// (`03/4`), verl's version leaves them, and Tinker's fails.
fn with_slash_as_fraction(text: String, copy: Copy) -> Result<String, Raised> {
    let Some((top, bottom)) = text.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        return Ok(text);
    };
    let (Some(top), Some(bottom)) = (int(top), int(bottom)) else { return Ok(text) };
    if text == format!("{top}/{bottom}") {
        Ok(format!(r"\frac{{{top}}}{{{bottom}}}"))
    } else {
        match copy {
            Copy::Verl => Ok(text),
            Copy::Tinker => Err(Raised),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_fail_leave_the_answer_as_it_is() {
        assert_eq!(mathd(r" \dfrac 12 "), r"\frac{1}{2}");
        for failing in [r"2 \sqrt", r"1 \frac", "03/4", r"1\text{ m}\text{ s}"] {
            assert_eq!(mathd(failing), failing);
        }
        assert_eq!(mathd(r"\frac1"), r"\frac1");
    }

    #[test]
    fn the_copies_differ_where_upstream_does() {
        assert_eq!(strip("03/4", Copy::Verl), Ok("03/4".to_owned()));
        assert_eq!(strip("03/4", Copy::Tinker), Err(Raised));
        assert_eq!(strip(r"5\\\\%", Copy::Verl), Ok("5".to_owned()));
        assert_eq!(strip(r"5\\\\%", Copy::Tinker), Ok(r"5\".to_owned()));
    }

    #[test]
    fn boxes_are_compared_after_the_rules() {
        assert_eq!(grade("0.5", r"so $\boxed{\tfrac12}$"), (true, Some(r"\tfrac12")));
        assert_eq!(grade("5", r"\boxed{x=5}"), (true, Some("x=5")));
        assert_eq!(grade("5", "5"), (false, None));
    }
}
