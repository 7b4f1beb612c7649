//! Prepares a template's source for minijinja's parser. Lines of tags stay the same, and so do columns,
//! except after a product.
//!
//! - `{% generation %}` and `{% endgeneration %}`, which transformers adds to Jinja, become a block with
//!   its own scope, as in transformers.
//! - The left side of every `*` goes through a filter, `once`, that does nothing. Otherwise minijinja would
//!   compute products of constants while parsing, without a limit.

use std::borrow::Cow;

use super::Dialect;

/// Name of the filter that does nothing.
pub(super) const ONCE: &str = "once";

/// Returns a source with Jinja's newlines: `\n` for `\r\n` and `\r`.
pub fn newlines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        source.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        source.into()
    }
}

/// Returns a source that minijinja can parse within bounds.
pub(super) fn plain(source: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        // Length of text that is copied unchanged.
        let copied = match tag.as_bytes().get(1) {
            Some(b'#') => Some(tag.find("#}").map_or(tag.len(), |end| end + 2)),
            Some(b'%') => raw(tag),
            Some(b'{') => None,
            _ => Some(1),
        };
        rest = match copied {
            Some(length) => {
                out.push_str(&tag[..length]);
                &tag[length..]
            }
            None => inside(tag, dialect, &mut out),
        };
    }
    out.push_str(rest);
    out
}

/// Returns the end of `{% raw %}` … `{% endraw %}`, if it begins here.
fn raw(tag: &str) -> Option<usize> {
    let body = simple(tag, "raw")?;
    let mut at = body;
    while let Some(found) = tag[at..].find("{%") {
        at += found;
        if let Some(length) = simple(&tag[at..], "endraw") {
            return Some(at + length);
        }
        at += 2;
    }
    Some(tag.len())
}

/// Returns the length of a tag that begins here and consists of just this name.
fn simple(tag: &str, name: &str) -> Option<usize> {
    let inner = tag.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let after = inner.strip_prefix(name)?.trim_start();
    let after = after.strip_prefix(['-', '+']).unwrap_or(after).strip_prefix("%}")?;
    Some(tag.len() - after.len())
}

/// Writes the tag that begins here, and returns the text after it.
fn inside<'a>(tag: &'a str, dialect: Dialect, out: &mut String) -> &'a str {
    let bytes = tag.as_bytes();
    let named = [("generation", "with      "), ("endgeneration", "endwith      ")];
    for (name, instead) in named {
        if dialect == Dialect::Transformers
            && let Some(end) = simple(tag, name)
        {
            out.push_str(&tag[..end].replacen(name, instead, 1));
            return &tag[end..];
        }
    }
    let end = if bytes[1] == b'%' { "%}" } else { "}}" };
    let (mut at, mut written, mut open) = (2, 0, 0_usize);
    // The last byte that is not white space: a `*` after an operand is a product.
    let mut last = b'(';
    while let Some(&byte) = bytes.get(at) {
        if open == 0 && tag.as_bytes()[at..].starts_with(end.as_bytes()) {
            at += end.len();
            break;
        }
        match byte {
            b'\'' | b'"' => at = quoted(bytes, at),
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'*' => {
                let power = bytes.get(at + 1) == Some(&b'*');
                if !power && !matches!(last, b'(' | b'[' | b',' | b'*') {
                    out.push_str(&tag[written..at]);
                    out.push('|');
                    out.push_str(ONCE);
                    out.push(' ');
                    written = at;
                }
                at += usize::from(power);
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
        at += 1;
    }
    let at = at.min(tag.len());
    out.push_str(&tag[written..at]);
    &tag[at..]
}

/// Returns the index of the last byte of a quote that begins here.
fn quoted(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != bytes[from] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_changed() {
        let known = |source: &str| plain(source, Dialect::Transformers);
        assert_eq!(
            known("{%- generation -%}a{% endgeneration +%}"),
            "{%- with       -%}a{% endwith       +%}"
        );
        assert_eq!(known("{{ 2 * 3 }} * {{ 2 ** 3 }}"), "{{ 2 |once * 3 }} * {{ 2 ** 3 }}");
        for same in [
            "{# {% generation %} 2 * 3 #}",
            "{% raw %}{% generation %}{{ 2 * 3 }}{%- endraw -%}",
            "{{ '{% generation %} * \\' *' }}",
            "{{ f(*a, **b) }}{{ [*a] }}",
            "{% set generation = 1 %}{{ {'a': {'}}': 1}} }}",
            "{{ \"a * ",
            "{%",
            "{",
            "{{ 'a\\",
        ] {
            assert_eq!(known(same), same);
        }
        assert_eq!(plain("{% generation %}", Dialect::Plain), "{% generation %}");
        assert_eq!(newlines("a\r\nb\rc\n"), "a\nb\nc\n");
    }
}
