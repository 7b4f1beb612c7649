//! Values as Python shows them: `str` and `repr`.

use std::fmt::{self, Display, Formatter, Write};

use minijinja::Value;
use minijinja::value::ValueKind;

use super::made::{DEPTH, entries};

/// A value formatted by Python's `str`.
pub(super) struct Shown<'a>(pub &'a Value);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            Some(text) => f.write_str(text),
            None => represent(f, self.0, 0),
        }
    }
}

fn represent(out: &mut dyn Write, value: &Value, depth: usize) -> fmt::Result {
    if depth > DEPTH {
        return out.write_str("...");
    }
    match (value.kind(), value.as_object()) {
        (ValueKind::Number, _) if !value.is_integer() => number(out, value, ["nan", "inf"]),
        (ValueKind::String, _) => quoted(out, value.as_str().unwrap_or_default()),
        (ValueKind::Undefined, _) if depth > 0 => out.write_str("Undefined"),
        (ValueKind::Seq | ValueKind::Iterable, Some(_)) => {
            let is_tuple = value.is_tuple();
            out.write_char(if is_tuple { '(' } else { '[' })?;
            let mut length = 0;
            for item in value.try_iter().map_err(|_| fmt::Error)? {
                if length > 0 {
                    out.write_str(", ")?;
                }
                represent(out, &item, depth + 1)?;
                length += 1;
            }
            out.write_str(match (is_tuple, length) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            })
        }
        (ValueKind::Map, Some(object)) => {
            out.write_char('{')?;
            for (at, (key, item)) in entries(object).enumerate() {
                if at > 0 {
                    out.write_str(", ")?;
                }
                represent(out, &key, depth + 1)?;
                out.write_str(": ")?;
                represent(out, &item, depth + 1)?;
            }
            out.write_char('}')
        }
        _ => write!(out, "{value}"),
    }
}

fn quoted(out: &mut dyn Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    let mut written = 0;
    for (at, c) in text.char_indices() {
        // Most characters are letters.
        if c.is_ascii_alphanumeric() || (c != quote && c != '\\' && is_printable(c)) {
            continue;
        }
        out.write_str(&text[written..at])?;
        written = at + c.len_utf8();
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            _ if c == quote || c == '\\' => write!(out, "\\{c}")?,
            _ if c < '\u{100}' => write!(out, "\\x{:02x}", c as u32)?,
            _ if c < '\u{10000}' => write!(out, "\\u{:04x}", c as u32)?,
            _ => write!(out, "\\U{:08x}", c as u32)?,
        }
    }
    out.write_str(&text[written..])?;
    out.write_char(quote)
}

/// Whether Python shows a character unescaped. Python escapes all unassigned characters; this escapes none.
fn is_printable(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || hidden)
}

/// Writes a non-integer as Python's `repr` does, with these names for NaN and infinity.
pub(super) fn number(out: &mut dyn Write, value: &Value, [nan, infinity]: [&str; 2]) -> fmt::Result {
    let Ok(real) = f64::try_from(value.clone()) else { return write!(out, "{value}") };
    let size = real.abs();
    if real.is_nan() {
        return out.write_str(nan);
    }
    if real.is_infinite() {
        return write!(out, "{}{infinity}", if real < 0.0 { "-" } else { "" });
    }
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return write!(out, "{real:?}");
    }
    // The exponent has a sign and at least two digits.
    let text = format!("{real:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}
