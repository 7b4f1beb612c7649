//! LaTeX source as a tree, read as tolerantly as by pylatexenc 2.11 (`latexwalker/__init__.py` with its
//! defaults): mistakes in the source are skipped, and the rest is kept. This module knows which macros take
//! arguments, but not their meaning.

use std::sync::LazyLock;

use regex::Regex;

use super::macros::{Body, Text, environment, with_arguments};
use super::pattern;

/// Maximum depth of groups, formulas, environments and arguments. Upstream fails where Python's stack ends,
/// somewhere past 300.
const DEEPEST: usize = 100;
/// Maximum number of tokens per byte of the source, and the minimum number of bytes to assume. Arguments
/// are discarded and read again if the source ends before the last one. In `\frac{\frac{\frac{…` that
/// doubles the work with each level; upstream continues until its timeout.
const STEPS: usize = 8;
const LEAST: usize = 1000;

/// A piece of LaTeX.
#[derive(Debug, PartialEq)]
pub(super) enum Node<'a> {
    /// Characters without a special meaning.
    Chars(String),
    /// A comment, represented by the space after it.
    Comment(&'a str),
    /// The content of braces.
    Group(Vec<Node<'a>>),
    /// A macro.
    Macro {
        /// Its name.
        name: &'a str,
        /// Its arguments; `None` if they were not to be read, or the source ended before them.
        arguments: Option<Vec<Option<Node<'a>>>>,
        /// The space after its name.
        space: &'a str,
    },
    /// An environment and its body. No environment with a meaning shows its arguments.
    Environment(&'a str, Vec<Node<'a>>),
    /// Characters with a special meaning, such as `--`.
    Special(&'a str),
    /// A formula, inline or as a block.
    Formula(Display, Vec<Node<'a>>),
}

/// Layout of a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Display {
    Inline,
    Block,
}

/// The source is too deep or takes too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// Parses `source`.
pub(super) fn read(source: &str) -> Result<Vec<Node<'_>>, TooMuch> {
    let steps = STEPS * source.len().max(LEAST);
    let mut reader = Reader { source, steps, depth: 0 };
    Ok(reader.nodes(0, Until::End, Setting::default())?.0)
}

struct Reader<'a> {
    source: &'a str,
    /// Number of tokens that may still be read.
    steps: usize,
    depth: usize,
}

/// The context on which tokens depend.
#[derive(Clone, Copy, Default)]
struct Setting {
    /// Whether this is inside `$…$`, where `$$` is two dollar signs.
    dollar: bool,
    /// Whether brackets act as braces.
    brackets: bool,
    /// Whether `\begin` and `\end` are ordinary macros.
    bare: bool,
}

/// End of a list of nodes. Every list also ends with the source.
#[derive(Clone, Copy)]
enum Until<'a> {
    End,
    Brace(char),
    Environment(&'a str),
    Formula(&'a str),
}

struct Token<'a> {
    kind: TokenKind<'a>,
    /// Its start, after the space.
    start: usize,
    end: usize,
    /// The space before it.
    space: &'a str,
}

#[derive(Clone, Copy)]
enum TokenKind<'a> {
    Chars(&'a str),
    Macro { name: &'a str, space: &'a str },
    Begin(&'a str),
    Finish(&'a str),
    Comment(&'a str),
    Open(char),
    Close(char),
    Formula(&'a str),
    Special(&'a str),
    Nothing,
}

/// An expression and its end; `None` if the source ended.
type Read<T> = Result<Option<(T, usize)>, TooMuch>;

impl<'a> Reader<'a> {
    /// `get_latex_nodes`: returns the nodes from `at`, and their end.
    fn nodes(
        &mut self,
        mut at: usize,
        until: Until<'a>,
        setting: Setting,
    ) -> Result<(Vec<Node<'a>>, usize), TooMuch> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(TooMuch);
        }
        let inner = Setting { brackets: false, bare: false, ..setting };
        let setting = Setting { brackets: matches!(until, Until::Brace(']')), ..inner };
        let mut nodes = Vec::new();
        let mut chars = String::new();
        loop {
            let token = self.token(at, setting)?;
            chars.push_str(token.space);
            if let TokenKind::Chars(more) = token.kind {
                chars.push_str(more);
                at = token.end;
                continue;
            }
            if !chars.is_empty() {
                nodes.push(Node::Chars(std::mem::take(&mut chars)));
            }
            at = token.end;
            match (token.kind, until) {
                (TokenKind::Nothing, _) => break,
                (TokenKind::Close(brace), Until::Brace(closing)) if brace == closing => break,
                (TokenKind::Finish(name), Until::Environment(open)) if name == open => break,
                (TokenKind::Formula(mark), Until::Formula(closing)) if mark == closing => break,
                // Upstream calls these mistakes and skips them. Characters are handled above.
                (
                    TokenKind::Close(_)
                    | TokenKind::Finish(_)
                    | TokenKind::Formula(r"\)" | r"\]")
                    | TokenKind::Chars(_),
                    _,
                ) => {}
                (TokenKind::Formula(mark), _) => {
                    let (closing, display) = match mark {
                        r"\(" => (r"\)", Display::Inline),
                        r"\[" => (r"\]", Display::Block),
                        "$" => ("$", Display::Inline),
                        _ => (mark, Display::Block),
                    };
                    let inside = Setting { dollar: mark == "$", ..inner };
                    let (body, end) = self.nodes(at, Until::Formula(closing), inside)?;
                    nodes.push(Node::Formula(display, body));
                    at = end;
                }
                (TokenKind::Comment(space), _) => nodes.push(Node::Comment(space)),
                (TokenKind::Open(brace), _) => {
                    let (group, end) = self.group(at, brace, inner)?;
                    nodes.push(group);
                    at = end;
                }
                (TokenKind::Begin(name), _) => {
                    let (takes, body) = environment(name);
                    if let Some((_, end)) = self.arguments(at, takes, Text::Arguments, inner)? {
                        at = end;
                    }
                    let dollar = setting.dollar && body != Body::Formula;
                    let inside = Setting { dollar, ..inner };
                    let (body, end) = self.nodes(at, Until::Environment(name), inside)?;
                    nodes.push(Node::Environment(name, body));
                    at = end;
                }
                (TokenKind::Macro { name, space }, _) => {
                    let (takes, text) =
                        with_arguments(name).map_or(("", Text::Nothing), |m| (m.takes, m.text));
                    let arguments = self.arguments(at, takes, text, inner)?.map(|(arguments, end)| {
                        at = end;
                        arguments
                    });
                    nodes.push(Node::Macro { name, arguments, space });
                }
                (TokenKind::Special(chars), _) => nodes.push(Node::Special(chars)),
            }
        }
        self.depth -= 1;
        Ok((nodes, at))
    }

    /// `get_latex_braced_group`, after its opening brace.
    fn group(&mut self, at: usize, brace: char, setting: Setting) -> Result<(Node<'a>, usize), TooMuch> {
        let closing = if brace == '[' { ']' } else { '}' };
        let (nodes, end) = self.nodes(at, Until::Brace(closing), setting)?;
        Ok((Node::Group(nodes), end))
    }

    /// `parse_args`: arguments of a macro or environment; `None` if the source ends before the last one.
    fn arguments(
        &mut self,
        mut at: usize,
        takes: &str,
        text: Text,
        setting: Setting,
    ) -> Read<Vec<Option<Node<'a>>>> {
        let setting = Setting { dollar: setting.dollar && !matches!(text, Text::Prose), ..setting };
        let mut arguments = Vec::with_capacity(takes.len());
        for kind in takes.bytes() {
            let argument = match kind {
                b'{' => match self.expression(at, setting)? {
                    None => return Ok(None),
                    read => read,
                },
                b'[' => self.optional(at, takes, setting)?,
                _ => {
                    // A star is looked for outside of any formula context.
                    let token = self.token(at, Setting::default())?;
                    match token.kind {
                        TokenKind::Nothing => return Ok(None),
                        TokenKind::Chars("*") => Some((Node::Chars("*".to_owned()), token.end)),
                        _ => None,
                    }
                }
            };
            at = argument.as_ref().map_or(at, |(_, end)| *end);
            arguments.push(argument.map(|(node, _)| node));
        }
        Ok(Some((arguments, at)))
    }

    /// `get_latex_maybe_optional_arg`.
    fn optional(&mut self, at: usize, takes: &str, setting: Setting) -> Read<Node<'a>> {
        // Only the line break takes a star and a bracket and no more. Its bracket must follow directly: in
        // `\\ [C,D]` it starts the next line.
        if takes == "*[" && self.source[at..].starts_with(char::is_whitespace) {
            return Ok(None);
        }
        let token = self.token(at, Setting { brackets: true, bare: true, ..setting })?;
        match token.kind {
            TokenKind::Open('[') => Ok(Some(self.group(token.end, '[', setting)?)),
            _ => Ok(None),
        }
    }

    /// `get_latex_expression`: one argument in TeX.
    fn expression(&mut self, mut at: usize, setting: Setting) -> Read<Node<'a>> {
        loop {
            let token = self.token(at, Setting { brackets: false, bare: true, ..setting })?;
            let mut end = token.end;
            let node = match token.kind {
                TokenKind::Nothing => return Ok(None),
                TokenKind::Comment(_) => {
                    at = token.end;
                    continue;
                }
                // A closing token of an outer group is not an argument; it remains for that group.
                TokenKind::Macro { name: "end", .. } | TokenKind::Close(_) => {
                    end = token.start;
                    Node::Chars(String::new())
                }
                TokenKind::Macro { name, space } => Node::Macro { name, arguments: None, space },
                TokenKind::Formula(mark) if mark.starts_with('\\') => {
                    Node::Macro { name: mark, arguments: None, space: "" }
                }
                TokenKind::Special(chars) => Node::Special(chars),
                TokenKind::Open(brace) => return Ok(Some(self.group(token.end, brace, setting)?)),
                TokenKind::Chars(chars)
                | TokenKind::Formula(chars)
                | TokenKind::Begin(chars)
                | TokenKind::Finish(chars) => Node::Chars(chars.to_owned()),
            };
            return Ok(Some((node, end)));
        }
    }

    /// `get_token`: the token at `at`.
    fn token(&mut self, at: usize, setting: Setting) -> Result<Token<'a>, TooMuch> {
        /// Characters with a special meaning, longest first.
        const SPECIALS: [&str; 8] = ["---", "--", "``", "''", "!`", "?`", "&", "~"];

        self.steps = self.steps.checked_sub(1).ok_or(TooMuch)?;
        let (space, paragraph) = space(&self.source[at..]);
        let start = at + space.len();
        let rest = &self.source[start..];
        let token = |kind, len| Token { kind, start, end: start + len, space };
        let Some(first) = rest.chars().next() else { return Ok(token(TokenKind::Nothing, 0)) };
        Ok(match first {
            _ if paragraph => token(TokenKind::Chars("\n\n"), 2),
            '\\' => match escape(rest, setting) {
                Some((kind, len)) => token(kind, len),
                // Upstream drops the space before a backslash at the end of the source, and stays there.
                None => Token { kind: TokenKind::Nothing, start: at, end: at, space: "" },
            },
            '%' => {
                let (kind, len) = comment(rest);
                token(kind, len)
            }
            '{' => token(TokenKind::Open('{'), 1),
            '}' => token(TokenKind::Close('}'), 1),
            '[' if setting.brackets => token(TokenKind::Open('['), 1),
            ']' if setting.brackets => token(TokenKind::Close(']'), 1),
            '$' if rest.starts_with("$$") && !setting.dollar => token(TokenKind::Formula("$$"), 2),
            '$' => token(TokenKind::Formula("$"), 1),
            _ => match SPECIALS.into_iter().find(|special| rest.starts_with(special)) {
                Some(special) => token(TokenKind::Special(special), special.len()),
                None => token(TokenKind::Chars(&rest[..first.len_utf8()]), first.len_utf8()),
            },
        })
    }
}

/// Returns the white space that `rest` starts with, and whether an empty line follows. The two line breaks
/// of an empty line are a separate token.
fn space(rest: &str) -> (&str, bool) {
    let all = &rest[..rest.len() - rest.trim_start().len()];
    match all.find("\n\n") {
        Some(at) => (&all[..at], true),
        None => (all, false),
    }
}

/// Returns the token that starts with a backslash, and its length. `None` if the source ends there.
fn escape(rest: &str, setting: Setting) -> Option<(TokenKind<'_>, usize)> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*\{([\w* ._-]+)\}"));
    let body = &rest[1..];
    let first = body.chars().next()?;
    let letters = body.len() - body.trim_start_matches(char::is_alphabetic).len();
    let (name, after) = body.split_at(letters.max(first.len_utf8()));
    let mut len = 1 + name.len();
    if matches!(name, "[" | "]" | "(" | ")") {
        return Some((TokenKind::Formula(&rest[..len]), len));
    }
    if matches!(name, "begin" | "end") && !setting.bare {
        return Some(match NAME.captures(after).and_then(|found| Some((found.get(0)?, found.get(1)?))) {
            None => (TokenKind::Chars(&rest[..len]), len),
            Some((all, environment)) if name == "begin" => {
                (TokenKind::Begin(environment.as_str()), len + all.end())
            }
            Some((all, environment)) => (TokenKind::Finish(environment.as_str()), len + all.end()),
        });
    }
    // TeX drops the space after a macro of letters, but keeps it after `\&`.
    let space = if letters > 0 { space(after).0 } else { "" };
    len += space.len();
    Some((TokenKind::Macro { name, space }, len))
}

/// Parses a comment. Only the space from its line's end on counts, unless the next line is empty.
fn comment(rest: &str) -> (TokenKind<'_>, usize) {
    let Some(end) = rest.find(['\n', '\r']) else { return (TokenKind::Comment(""), rest.len()) };
    let next = &rest[end + 1..];
    if next.starts_with(['\n', '\r']) {
        return (TokenKind::Comment(""), end);
    }
    let len = rest.len() - next.trim_start().len();
    (TokenKind::Comment(&rest[end..len]), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_passed_over() {
        let chars = |text: &str| Node::Chars(text.to_owned());
        assert_eq!(read("a}b"), Ok(vec![chars("a"), chars("b")]));
        assert_eq!(read("{a"), Ok(vec![Node::Group(vec![chars("a")])]));
        assert_eq!(read(r"a\end{x}"), Ok(vec![chars("a")]));
        assert_eq!(read("a \\"), Ok(vec![chars("a")]));
        let unread = Node::Macro { name: "frac", arguments: None, space: "" };
        assert_eq!(read(r"\frac{1}"), Ok(vec![unread, Node::Group(vec![chars("1")])]));
    }

    #[test]
    fn what_nests_too_deep_or_doubles_is_not_read() {
        let nested = |n: usize| format!("{}1{}", "{".repeat(n), "}".repeat(n));
        assert!(read(&nested(DEEPEST - 1)).is_ok());
        assert_eq!(read(&nested(DEEPEST)), Err(TooMuch));
        assert_eq!(read(&"{".repeat(100_000)), Err(TooMuch));
        assert_eq!(read(&r"\frac{".repeat(DEEPEST / 2)), Err(TooMuch));
    }
}
