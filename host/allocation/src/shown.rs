//! Escapes untrusted text for display. Text from a guest, a file or a server may contain characters that
//! control a terminal or that disguise a line. They are escaped as in JSON (`\u001b`), so that a line of
//! JSON keeps its value.
//!
//! To put untrusted text into a message, quote it with a length limit: [`name`], [`line()`] or [`lines`].
//! Text written to a terminal is passed through [`safe`] once more, in case one quote was forgotten.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// Maximum length of a displayed name, in bytes.
pub const NAME: usize = 80;
/// Maximum length of a displayed sentence, in bytes.
pub const LINE: usize = 1 << 10;
/// Maximum length of a displayed path, in bytes.
const PATH: usize = 4 << 10;

/// Returns whether a character is invisible but affects a terminal or the text around it: control
/// characters, line separators, direction marks and overrides, and unneeded characters without width.
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

/// Returns a name or value on one line, with line breaks escaped, cut to [`NAME`] bytes.
pub fn name(text: &str) -> String {
    word(text, NAME)
}

/// Returns the same, cut to `most` bytes.
pub fn word(text: &str, most: usize) -> String {
    shown(text, most, |c| match c {
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    })
}

/// Returns a path on one line.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy(), PATH)
}

/// Returns untrusted text on one line, with line breaks replaced by semicolons, cut to `most` bytes.
pub fn line(text: &str, most: usize) -> String {
    lines(text.trim(), most).replace('\n', "; ")
}

/// Returns untrusted text with its line breaks, cut to `most` bytes.
pub fn lines(text: &str, most: usize) -> String {
    shown(text, most, |c| match c {
        '\n' => Some("\n"),
        '\t' => Some("    "),
        _ => None,
    })
}

/// Returns a whole text escaped for a terminal. Keeps line breaks and tabs; cuts nothing.
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

/// Escapes control characters, except those for which `own` returns another form. Cuts at `most` bytes.
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
