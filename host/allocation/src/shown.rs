//! Text of others, shown and not obeyed: what a guest, a file or a server says may hold characters that steer a
//! terminal, or that make a line look like another one. They are written out as JSON writes them (`\u001b`), so that
//! a line of JSON stays the same value.
//!
//! Whoever puts foreign text into a sentence quotes it here, with a length: [`name`], [`line()`] or [`lines`]. Whoever
//! writes to a terminal makes all of it [`safe`] once more, in case a quote was forgotten.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of a name that are shown.
pub const NAME: usize = 80;
/// Bytes of a sentence that are shown.
pub const LINE: usize = 1 << 10;
/// Bytes of a path that are shown.
const PATH: usize = 4 << 10;

/// Whether a character does something to a terminal or to the text around it, and is none that one sees: controls,
/// line separators, marks and overrides of direction, and what has no width and no use in a sentence.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A name, or a value: all of it in one line, ends of lines written out, cut to [`NAME`] bytes.
pub fn name(text: &str) -> String {
    word(text, NAME)
}

/// The same, cut to `most` bytes.
pub fn word(text: &str, most: usize) -> String {
    shown(text, most, |c| match c {
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    })
}

/// A path.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy(), PATH)
}

/// Words of others in one line: a semicolon where a line ended, cut to `most` bytes.
pub fn line(text: &str, most: usize) -> String {
    lines(text.trim(), most).replace('\n', "; ")
}

/// Words of others in their own lines, cut to `most` bytes.
pub fn lines(text: &str, most: usize) -> String {
    shown(text, most, |c| match c {
        '\n' => Some("\n"),
        '\t' => Some("    "),
        _ => None,
    })
}

/// A whole text as it may go to a terminal: ends of lines and tabs stay, nothing is cut.
pub fn safe(text: &str) -> Cow<'_, str> {
    let kept = |c: char| c == '\n' || c == '\t' || !steers(c);
    if text.chars().all(kept) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(shown(text, usize::MAX, |c| match c {
        '\n' => Some("\n"),
        '\t' => Some("\t"),
        _ => None,
    }))
}

/// What steers is written out, but for what `own` has a form of its own for.
fn shown(text: &str, most: usize, own: impl Fn(char) -> Option<&'static str>) -> String {
    let mut fit = String::with_capacity(text.len().min(most));
    for c in text.chars() {
        if fit.len() >= most {
            fit.push('…');
            break;
        }
        match own(c) {
            Some(form) => fit.push_str(form),
            None if steers(c) => written_out(&mut fit, c),
            None => fit.push(c),
        }
    }
    fit
}

fn written_out(text: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_written_out() {
        let text = "a\u{1b}[2J\u{9b}b\u{202e}c\u{2028}\r\u{e0041}\u{7f}é漢👩‍🚀";
        let out = "a\\u001b[2J\\u009bb\\u202ec\\u2028\\u000d\\udb40\\udc41\\u007fé漢👩‍🚀";
        assert_eq!(safe(text), out);
        assert_eq!(lines(text, 1000), out);
        assert_eq!(name("x\nerror: no"), "x\\nerror: no");
        assert_eq!(line(" x\n\ty \n", 1000), "x;     y");
        assert!(matches!(safe("two\n\tlines"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(name(&"n".repeat(81)), "n".repeat(80) + "…");
        assert_eq!(name(&"n".repeat(80)), "n".repeat(80));
        assert_eq!(lines(&"\u{1b}".repeat(1 << 20), 12), "\\u001b\\u001b…");
    }
}
