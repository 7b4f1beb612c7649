//! `tojson`, as Python's `json.dumps`.

use std::fmt::{self, Write};

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, Value};

use super::invalid;
use super::made::{self, DEPTH, entries};
use super::shown::number;

/// `json.dumps` with the parameters of transformers' filter, in its order.
pub(super) fn to_json(value: &Value, more: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let more = more.into_values();
    let (given, named): (&[Value], Kwargs) = from_args(&more)?;
    let mut given = given.iter().cloned();
    let mut next = |name: &'static str| match given.next() {
        Some(value) => Ok(Some(value)),
        None => named.get::<Option<Value>>(name),
    };
    let ascii = next("ensure_ascii")?.is_some_and(|ascii| ascii.is_true());
    let indent = next("indent")?;
    let separators = next("separators")?.filter(|pair| !pair.is_none()).map(|pair| {
        let text = |at| pair.get_item_by_index(at).ok().and_then(|text| text.as_str().map(str::to_owned));
        text(0).zip(text(1)).ok_or_else(|| invalid("`separators` must be a pair of texts"))
    });
    let sorted = next("sort_keys")?.is_some_and(|sorted| sorted.is_true());
    named.assert_all_used()?;
    json(value, &Style { indent, separators: separators.transpose()?, ascii, sorted })
}

/// Options for writing JSON.
struct Style {
    /// Indent per level: a number of spaces, or a text.
    indent: Option<Value>,
    /// Separators between items, and after a key.
    separators: Option<(String, String)>,
    /// Whether characters beyond ASCII are escaped.
    ascii: bool,
    /// Whether an object's keys are sorted.
    sorted: bool,
}

/// Returns a value as JSON.
fn json(value: &Value, style: &Style) -> Result<String, Error> {
    let level = match &style.indent {
        Some(indent) if !indent.is_none() && !indent.is_undefined() => Some(match indent.as_usize() {
            Some(spaces) => {
                made::count(spaces)?;
                " ".repeat(spaces)
            }
            None => indent.as_str().ok_or_else(|| invalid("`indent` must be a number or a text"))?.to_owned(),
        }),
        _ => None,
    };
    let usual = || (if level.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    let (between, after) = style.separators.clone().unwrap_or_else(usual);
    let mut writer = Writer { level: level.as_deref(), between: &between, after: &after, style, fault: None };
    let text = made::text(|out| writer.value(out, value, 0));
    match writer.fault {
        Some(fault) => Err(invalid(fault)),
        None => text,
    }
}

struct Writer<'a> {
    level: Option<&'a str>,
    between: &'a str,
    after: &'a str,
    style: &'a Style,
    /// Reason why a value has no JSON.
    fault: Option<String>,
}

impl Writer<'_> {
    fn value(&mut self, out: &mut dyn Write, value: &Value, depth: usize) -> fmt::Result {
        if depth > DEPTH {
            return self.fails(format!("a value is nested more than {DEPTH} deep"));
        }
        match value.kind() {
            ValueKind::None => out.write_str("null"),
            ValueKind::Bool => out.write_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => write!(out, "{value}"),
            ValueKind::Number => number(out, value, ["NaN", "Infinity"]),
            ValueKind::String => self.text(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let Ok(items) = value.try_iter() else { return self.fails("a list has no items".to_owned()) };
                self.all(out, "[]", items, depth, |this, out, item| this.value(out, &item, depth + 1))
            }
            ValueKind::Map => {
                let Some(object) = value.as_object() else { return Err(fmt::Error) };
                let mut all: Vec<(Value, Value)> = entries(object).collect();
                if self.style.sorted {
                    all.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.all(out, "{}", all.into_iter(), depth, |this, out, (key, item)| {
                    this.key(out, &key)?;
                    out.write_str(this.after)?;
                    this.value(out, &item, depth + 1)
                })
            }
            kind => self.fails(format!("JSON has no {kind}")),
        }
    }

    fn all<T>(
        &mut self,
        out: &mut dyn Write,
        brackets: &str,
        items: impl Iterator<Item = T>,
        depth: usize,
        one: impl Fn(&mut Self, &mut dyn Write, T) -> fmt::Result,
    ) -> fmt::Result {
        out.write_str(&brackets[..1])?;
        let mut some = false;
        for item in items {
            if std::mem::replace(&mut some, true) {
                out.write_str(self.between)?;
            }
            self.line(out, depth + 1)?;
            one(self, out, item)?;
        }
        if some {
            self.line(out, depth)?;
        }
        out.write_str(&brackets[1..])
    }

    fn line(&self, out: &mut dyn Write, depth: usize) -> fmt::Result {
        let Some(level) = self.level else { return Ok(()) };
        out.write_char('\n')?;
        (0..depth).try_for_each(|_| out.write_str(level))
    }

    fn key(&mut self, out: &mut dyn Write, key: &Value) -> fmt::Result {
        match key.kind() {
            ValueKind::String => self.text(out, key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                out.write_char('"')?;
                self.value(out, key, 0)?;
                out.write_char('"')
            }
            kind => self.fails(format!("a JSON key can't be of type {kind}")),
        }
    }

    fn text(&self, out: &mut dyn Write, text: &str) -> fmt::Result {
        out.write_char('"')?;
        let mut plain = 0;
        for (at, c) in text.char_indices() {
            let short = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                '\0'..' ' => "",
                _ if self.style.ascii && !c.is_ascii() => "",
                _ => continue,
            };
            out.write_str(&text[plain..at])?;
            plain = at + c.len_utf8();
            if short.is_empty() {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
            }
            out.write_str(short)?;
        }
        out.write_str(&text[plain..])?;
        out.write_char('"')
    }

    fn fails(&mut self, why: String) -> fmt::Result {
        self.fault.get_or_insert(why);
        Err(fmt::Error)
    }
}
