//! The content of a text's last `\boxed{…}`: as our own graders look for it, and in three ways of code that
//! was ported. These differ in boxes that are not closed or have no braces. Nothing here knows the form of
//! an answer.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern;

/// Returns the content of the last box. If that box is not closed, because the answer was cut off in it,
/// the content is empty. A `\boxed` without a brace ends with the line or at a dollar sign.
pub(super) fn last(text: &str) -> Option<&str> {
    let (_, last) = text.rsplit_once(r"\boxed")?;
    let last = last.trim_start();
    if last.starts_with('{') {
        return closed(last).or(Some(""));
    }
    last.split(['$', '\n']).next()
}

/// `last_boxed_only_string` and `remove_boxed` of verl's `math_reward.py`, after Hendrycks' MATH. A
/// `\boxed ` before a space takes precedence anywhere and ends at a dollar sign. Returns `None` where
/// upstream fails an assertion and scores 0, at an `\fbox` for example.
pub(super) fn hendrycks(text: &str) -> Option<&str> {
    if let Some((_, last)) = text.rsplit_once(r"\boxed ") {
        return Some(last.split_once('$').map_or(last, |(answer, _)| answer));
    }
    let (_, last) = text.rsplit_once(r"\boxed")?;
    closed(last)
}

/// `last_boxed_only_string` of verl's `math_dapo.py`: the last `\boxed{`, if it is closed.
pub(super) fn dapo(text: &str) -> Option<&str> {
    let at = text.rfind(r"\boxed{")?;
    closed(&text[at + r"\boxed".len()..])
}

/// `extract_boxed` of tinker-cookbook's `math_grading.py`: the box that closes last. An unmatched closing
/// brace anywhere hides all boxes. Without a box, the word after a bare `\boxed`.
pub(super) fn tinker(text: &str) -> Option<&str> {
    static BARE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\\boxed\s+([a-zA-Z0-9]+)"));
    let mut open = Vec::new();
    let mut last = None;
    for (at, c) in text.char_indices() {
        match c {
            '{' => open.push(at),
            '}' => {
                let start = open.pop()?;
                if text[..start].ends_with(r"\boxed") {
                    last = Some(&text[start + 1..at]);
                }
            }
            _ => {}
        }
    }
    last.or_else(|| Some(BARE.captures(text)?.get(1)?.as_str()))
}

/// Returns the text between the brace at the start of `text` and its closing brace.
fn closed(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('{')?;
    let mut depth = 1_usize;
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_is_last_counts_alone() {
        for (text, inside) in [
            (r"\boxed{1} or \boxed{\frac{1}{2}}.", Some(r"\frac{1}{2}")),
            (r"$\boxed 7$ of 8", Some("7")),
            ("\\boxed {7}\n8", Some("7")),
            (r"\boxed{5} and \boxed{6", Some("")),
            (r"\boxed{5} and \boxed", Some("")),
            (r"\boxed{5} and \boxed{}", Some("")),
            (r"\boxed{a\boxed{b}}", Some("b")),
            (r"\fbox{3}", None),
        ] {
            assert_eq!(last(text), inside, "{text}");
        }
    }

    #[test]
    fn three_ways_to_a_box() {
        for (text, by_hendrycks, by_dapo, by_tinker) in [
            (
                r"\boxed{1} or \boxed{\frac{1}{2}}.",
                Some(r"\frac{1}{2}"),
                Some(r"\frac{1}{2}"),
                Some(r"\frac{1}{2}"),
            ),
            (r"$\boxed 7$ not \boxed{8}", Some("7"), Some("8"), Some("8")),
            (r"\boxed 7 is", Some("7 is"), None, Some("7")),
            (r"\fbox{3}", None, None, None),
            (r"\boxed{4}}", Some("4"), Some("4"), None),
            (r"\boxed{5} and \boxed{6", None, None, Some("5")),
            (r"\boxed{a\boxed{b}}", Some("b"), Some("b"), Some(r"a\boxed{b}")),
            (r"\boxed {9}", Some("{9}"), None, None),
            ("none", None, None, None),
        ] {
            assert_eq!(hendrycks(text), by_hendrycks, "{text}");
            assert_eq!(dapo(text), by_dapo, "{text}");
            assert_eq!(tinker(text), by_tinker, "{text}");
        }
    }
}
