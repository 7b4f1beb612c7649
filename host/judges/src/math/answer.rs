//! The text in an answer that math-verify reads, where it is certain which one it is.
//!
//! math-verify searches by regular expressions (`parser.py`, `lazy_expr_regex` and `lazy_latex_regex`), in
//! groups of one priority. In a group, the match that ends last is read first; of those that end together,
//! the one that begins first. Here the expressions for numbers are the same, so that their matches are;
//! those for LaTeX are not searched, but bounded: every match of one ends behind a delimiter.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::value::Scalar;

/// What math-verify reads.
#[derive(Debug)]
pub enum Answer<'t> {
    /// The content of a box.
    Box(&'t str),
    /// A number or a fraction outside of LaTeX.
    Number(Scalar),
    /// A number outside of LaTeX, with a percent sign behind it.
    Percent(Scalar),
    /// Nothing.
    Nothing,
}

/// Where a number begins; then the number and what may follow it. Named as in `parser.py`.
const NUMBER: &str = concat!(
    r"(?:^|\s|=)(?:\*\*)?[$€£¥₹₽₪₩₫฿₡₢₣₤₥₦₧₨₩₪₫₭₮₯₰₱₲₳₴₵₶₷₸₹₺₻₼₽₾₿]?",
    r"(?:(-?[1-9]\d{0,2}(?:[ ,]\d{3})+)(\.\d+)?|(-?\d+)([.,]\d+)|(\.\d+)|(-?\d+))",
    r"(\s*(?:%|[Pp]ercent|\s*[Pp]ercentage|\s*[Pp]ct))?",
);
/// An expression with an operator.
const EXPRESSION: &str = concat!(
    r"(?:^|\s|=)(?:\*\*)?(?<expr>-?\(?-?\d[\d.\s+\-*×/^()÷]*[+\-*×/^()÷][\d.\s+\-*×/^()÷]+\)?)",
    r"(?:\*\*)?(?:\.|,|:|\s|\)|\$|$)",
);

static FINAL: LazyLock<Regex> = LazyLock::new(|| anchored(r"(?i:final answer.{0,100}?)\s+is:?"));
static COLON: LazyLock<Regex> = LazyLock::new(|| anchored(r"(?i:answer):(?:.{0,100}=\s*|.{0,50}?)"));
static WORD: LazyLock<Regex> = LazyLock::new(|| anchored(r"(?i:answer)(?:.{0,100}=\s*|.{0,50}?)"));
static EXPRESSIONS: LazyLock<Regex> = LazyLock::new(|| compiled(EXPRESSION));
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| compiled(NUMBER));

fn anchored(before: &str) -> Regex {
    compiled(&format!("{before}(?:{EXPRESSION}|{NUMBER})"))
}

fn compiled(regex: &str) -> Regex {
    Regex::new(regex).expect("a constant expression compiles")
}

/// Returns what math-verify reads in an answer; none where that is not certain.
pub fn of(text: &str) -> Option<Answer<'_>> {
    if !is_alike(text) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if text.contains("boxed") || text.contains("fbox") {
        return boxed(text, &lower).map(Answer::Box);
    }
    number(text, &lower)
}

/// Returns whether Python's expressions see the same digits, spaces and letters in a text as Rust's.
fn is_alike(text: &str) -> bool {
    let is_other = |c: char| match c {
        '\u{b}' | '\u{1c}'..='\u{1f}' => true,
        _ => !c.is_ascii() && (c.is_numeric() || c.is_whitespace()),
    };
    // These letters have a small or capital form in ASCII.
    !text.contains(['İ', 'ı', 'ſ', '\u{212a}']) && !text.contains(is_other)
}

/// Returns whether each brace of a text is closed.
pub fn is_balanced(text: &str) -> bool {
    let mut open = 0_i64;
    for byte in text.bytes() {
        open += i64::from(byte == b'{') - i64::from(byte == b'}');
        if open < 0 {
            return false;
        }
    }
    open == 0
}

/// Returns the content of the last box, if math-verify reads this and nothing else.
///
/// Two kinds of matches have a box: from the first box to the last brace, of which the last box is read; and
/// LaTeX between delimiters, of which all boxes are. Both end behind the last box, and both give its
/// content alone if no delimiters hold two boxes. No other match ends so late.
fn boxed<'t>(text: &'t str, lower: &str) -> Option<&'t str> {
    const BOX: &str = r"\boxed{";
    let starts: Vec<usize> = text.match_indices(BOX).map(|(at, _)| at).collect();
    let named = text.matches("boxed").count() + text.matches("fbox").count();
    let start = *starts.last()?;
    if named != starts.len() {
        return None;
    }
    let content = content(text, start)?;
    let tail = &text[content.end + 1..];
    if starts.len() > 1 {
        let before = starts[starts.len() - 2];
        let before = self::content(text, before)?;
        if before.end >= start || !is_apart(text, before.end + 1..start, &text[before]) {
            return None;
        }
    }
    // A percent sign behind LaTeX is part of the match.
    if tail.contains(['%']) || ["ercent", "pct", "Pct"].iter().any(|word| tail.contains(word)) {
        return None;
    }
    (!lower.contains("final answer") || is_final(text, lower, start, tail))
        .then(|| text[content].trim_ascii())
}

/// Returns where the content of the box at `start` is, if it has no delimiters of LaTeX.
fn content(text: &str, start: usize) -> Option<Range<usize>> {
    let start = start + r"\boxed{".len();
    let mut open = 1;
    let end = start
        + text.bytes().skip(start).position(|byte| {
            open += i64::from(byte == b'{') - i64::from(byte == b'}');
            open == 0
        })?;
    let inner = text[start..end].replace(r"\$", "");
    let is_plain =
        !inner.contains(['$', '[', ']', '\n']) && ![r"\(", r"\)"].iter().any(|d| inner.contains(d));
    (is_plain && !inner.is_empty()).then_some(start..end)
}

/// Returns whether two boxes with this text between them are read apart, the first with this content: they
/// are far from each other, and no delimiters hold both.
fn is_apart(text: &str, gap: Range<usize>, first: &str) -> bool {
    // Displayed LaTeX that begins before the first box ends before the second.
    let opened = text[..gap.start].rfind(r"\[");
    let is_closed = opened.is_none_or(|at| text[at..gap.end].contains(r"\]"));
    let (gap, rest) = (&text[gap.clone()], &text[gap.end..]);
    let is_same = rest.strip_prefix(r"\boxed{").is_some_and(|rest| rest.starts_with(&format!("{first}}}")));
    let is_far = gap.chars().count() >= if is_same { 10 } else { 70 };
    // So does what is within `$$`, which looks the same where it begins and where it ends; and LaTeX in a line ends with the line.
    let is_closed = is_closed && (!text.contains("$$") || gap.contains("$$")) && gap.contains('\n');
    // Several LaTeX texts with these words between them are one match.
    let is_delimiter = |c: char| "$()[]\\. \n\t\r".contains(c);
    let words = gap.trim_matches(is_delimiter);
    let joins = |word: &str| words.starts_with(word) || words.ends_with(word);
    let is_joined = words.is_empty() || [",", "and", "or"].into_iter().any(joins);
    // So are those with a percent sign between them.
    let is_percent = ["%", "ercent", "pct", "Pct"].iter().any(|sign| gap.contains(sign));
    is_far && is_closed && !is_joined && !is_percent
}

/// Returns whether a final answer is the box: nothing but its own delimiters and space is between these words and the
/// box, and behind it are neither numbers nor LaTeX.
fn is_final(text: &str, lower: &str, start: usize, tail: &str) -> bool {
    let Some(from) = lower.find("final answer").filter(|from| *from < start) else { return false };
    let (between, rest) = (text[from..start].trim_ascii_end(), tail.trim_ascii_start());
    let between =
        [r"\(", r"\[", "$$", "$"].iter().find_map(|open| between.strip_suffix(open)).unwrap_or(between);
    let rest = [r"\)", r"\]", "$$", "$"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
    let is_plain = |text: &str| !text.contains(['$', '\\', '[', ']']);
    let is_hoped = text.contains("I hope") && (!tail.contains("I hope") || text[..start].contains("I hope"));
    is_plain(between) && is_plain(rest) && !tail.contains(|c: char| c.is_numeric()) && !is_hoped
}

/// Returns the number that math-verify reads in an answer without boxes.
fn number(text: &str, lower: &str) -> Option<Answer<'static>> {
    if lower.contains("final answer is") && text.contains("I hope") {
        return None;
    }
    for (word, regex) in [("final answer", &FINAL), ("answer:", &COLON), ("answer", &WORD)] {
        let Some(from) = lower.find(word) else { continue };
        let matches: Vec<Range<usize>> = regex.find_iter(text).map(|found| found.range()).collect();
        // There, an equals sign behind it makes Python look for another match.
        let is_followed = |found: &Range<usize>| text[found.end..].trim_ascii_start().starts_with('=');
        if word != "final answer" && matches.iter().any(is_followed) {
            return None;
        }
        match (last(&matches), latex_end(&text[from..])) {
            (None, None) => {}
            (None, Some(_)) => return None,
            (Some(found), end) => return read(text, regex, found, end.map(|end| from + end)),
        }
    }
    let end = latex_end(text);
    let both =
        [&EXPRESSIONS, &NUMBERS].map(|regex| regex.find_iter(text).map(|found| found.range()).collect());
    let [expressions, numbers]: [Vec<Range<usize>>; 2] = both;
    let regex = match (last(&expressions), last(&numbers)) {
        (None, None) => return end.is_none().then_some(Answer::Nothing),
        (Some(one), Some(other)) if key(&one) >= key(&other) => (&EXPRESSIONS, one),
        (_, Some(other)) => (&NUMBERS, other),
        (Some(one), None) => (&EXPRESSIONS, one),
    };
    read(text, regex.0, regex.1, end)
}

/// The order of matches: those that end last, then those that begin first, are read first.
fn key(found: &Range<usize>) -> (usize, std::cmp::Reverse<usize>) {
    (found.end, std::cmp::Reverse(found.start))
}

fn last(matches: &[Range<usize>]) -> Option<Range<usize>> {
    matches.iter().max_by_key(|found| key(found)).cloned()
}

/// Returns a bound on where LaTeX can end in a text without boxes; none if it has none.
fn latex_end(text: &str) -> Option<usize> {
    let ends = ["$", r"\]", r"\)", "]", "}"].iter().filter_map(|end| Some(text.rfind(end)? + end.len()));
    let end = ends.max()?;
    let is_there = text.matches('$').count() > 1 || text.contains(['\\', '[']);
    // A percent sign or word may follow.
    let rest = text[end..].trim_start();
    let is_percent =
        ["\\", "%", "percent", "Percent", "pct", "Pct"].iter().any(|word| rest.starts_with(word));
    is_there.then_some(if is_percent { text.len() } else { end })
}

/// Returns the number of a match, if LaTeX ends before it begins.
fn read(text: &str, regex: &Regex, found: Range<usize>, latex: Option<usize>) -> Option<Answer<'static>> {
    let captures = regex.captures_at(text, found.start)?;
    if captures.get(0)?.range() != found {
        return None;
    }
    let groups: Vec<usize> = captures.iter().skip(1).flatten().map(|group| group.start()).collect();
    let begins = *groups.first()?;
    if latex.is_some_and(|end| end > begins) {
        return None;
    }
    scalar(&captures)
}

/// Returns the number of a match, as math-verify's `extract_expr` does.
fn scalar(captures: &Captures<'_>) -> Option<Answer<'static>> {
    if let Some(expression) = captures.name("expr") {
        // What Python would not read, math-verify reads in part.
        if expression.as_str().trim_ascii_end().contains('\r') {
            return None;
        }
        let (over, under) = expression.as_str().split_once('/')?;
        let (is_negative, over) = over.strip_prefix('-').map_or((false, over), |over| (true, over));
        let (over, under) = (over.trim_ascii(), under.trim_ascii());
        if [over, under].iter().any(|digits| digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        let fraction = Scalar::fraction(over, under)?;
        return Some(Answer::Number(if is_negative { fraction.negative() } else { fraction }));
    }
    let count = captures.len();
    let group = |at: usize| captures.get(count - 8 + at).map_or("", |group| group.as_str());
    let whole = if group(1).is_empty() {
        format!("{}{}", group(3), group(6))
    } else {
        group(1).replace([' ', ','], "")
    };
    let part = [group(2), group(4), group(5)].concat();
    let (is_negative, digits) = whole.strip_prefix('-').map_or((false, &*whole), |digits| (true, digits));
    // Zeros behind a sign are not dropped, and sympy reads no such number.
    if is_negative && digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    let number = Scalar::decimal(is_negative, digits, part.trim_start_matches(['.', ',']))?;
    Some(if group(7).is_empty() { Answer::Number(number) } else { Answer::Percent(number) })
}
