//! LaTeX as plain text, as pylatexenc 2.11 writes it (`latex2text/__init__.py` with its defaults), and then
//! in the form of tinker-cookbook's `_parse_latex`. Nothing here knows mathematics: `\frac{1}{2}` is `1/2`
//! because of a table.

use super::latex::{Display, Node, TooMuch, read};
use super::macros::{Body, Text, environment, with_arguments};
use super::symbols::symbol;

/// Maximum length of a text, per byte of the source, and the minimum number of bytes to assume. Accents on
/// accents and wide matrix columns could otherwise write far more.
const GROWTH: usize = 64;
const LEAST: usize = 1000;

/// Reason why some LaTeX has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untextable {
    /// Upstream raises an exception, for a root without its argument, for example.
    Raised,
    /// It nests too deep or takes too much work.
    TooMuch,
}

impl From<TooMuch> for Untextable {
    fn from(_: TooMuch) -> Self {
        Self::TooMuch
    }
}

/// `_parse_latex` of tinker-cookbook's `math_grading.py`: returns LaTeX as text that is close to sympy's
/// syntax.
pub fn latex_to_text(source: &str) -> Result<String, Untextable> {
    let source = source.replace(r"\tfrac", r"\frac").replace(r"\dfrac", r"\frac");
    // Separates a mixed number from its fraction.
    let source = source.replace(r"\frac", r" \frac");
    let writer = Writer { most: GROWTH * source.len().max(LEAST) };
    let mut text = writer.list(&read(&source)?, Mode::Prose)?;
    for (sign, by) in [("√", "sqrt"), ("π", "pi"), ("∞", "inf"), ("∪", "U"), ("·", "*"), ("×", "*")]
    {
        if text.contains(sign) {
            text = text.replace(sign, by);
        }
    }
    Ok(text.trim().to_owned())
}

/// Context of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Outside formulas: spaces are kept, except those after a macro's name.
    Prose,
    /// In a formula: text of only spaces is dropped, and spaces after a macro's name are kept.
    Formula,
}

struct Writer {
    /// Maximum length of any text.
    most: usize,
}

type Written = Result<String, Untextable>;

impl Writer {
    /// `nodelist_to_text`.
    fn list(&self, nodes: &[Node], place: Mode) -> Written {
        let mut out = String::new();
        let mut after_name = "";
        for node in nodes {
            if place == Mode::Formula && matches!(node, Node::Chars(_)) {
                out.push_str(after_name);
            }
            out.push_str(&self.node(node, place)?);
            after_name = match node {
                // The space counts if there is no argument; a missing optional one does not count as one.
                Node::Macro { name, arguments, space } => {
                    let takes = with_arguments(name).map_or("", |known| known.takes);
                    let given = arguments.as_ref().is_some_and(|given| given.iter().any(Option::is_some));
                    if given || (arguments.is_some() && takes.contains('{')) { "" } else { space }
                }
                _ => "",
            };
            out = self.bounded(out)?;
        }
        Ok(out)
    }

    /// `node_to_text`.
    fn node(&self, node: &Node, place: Mode) -> Written {
        match node {
            Node::Chars(chars) if place == Mode::Formula && chars.trim().is_empty() => Ok(String::new()),
            Node::Chars(chars) => Ok(chars.clone()),
            Node::Comment(space) => Ok((*space).to_owned()),
            Node::Group(nodes) => self.list(nodes, place),
            Node::Macro { name, arguments, .. } => self.macro_text(name, arguments.as_deref(), place),
            Node::Environment(name, body) => match environment(name).1 {
                Body::Plain => self.list(body, place),
                Body::Matrix => self.matrix(body, place),
                Body::Formula => self.formula(body, Display::Block),
            },
            Node::Special(chars) => Ok(special(chars).to_owned()),
            Node::Formula(display, body) => self.formula(body, *display),
        }
    }

    /// `macro_node_to_text`.
    fn macro_text(&self, name: &str, arguments: Option<&[Option<Node>]>, place: Mode) -> Written {
        let Some(known) = with_arguments(name) else {
            return Ok(symbol(name).unwrap_or_default().to_owned());
        };
        let arguments = arguments.unwrap_or_default();
        let argument = |node: &Option<Node>| match node {
            None => Ok(String::new()),
            Some(node) => self.node(node, place),
        };
        match known.text {
            Text::Nothing => Ok(String::new()),
            Text::Arguments | Text::Prose => arguments.iter().map(argument).collect(),
            // Unused arguments are not written, so they cannot fail.
            Text::Template(template) if !template.contains('%') => Ok(template.to_owned()),
            Text::Template(template) => {
                let texts = arguments.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
                self.bounded(fill(template, &texts)?)
            }
            Text::Alphabet(alphabet) => {
                let text = arguments.first().map_or(Ok(String::new()), argument)?;
                Ok(text.chars().map(|c| alphabet.letter(c)).collect())
            }
            Text::Accent(accent) => {
                let text = match arguments.first() {
                    None => " ".to_owned(),
                    Some(node) => argument(node)?.trim().to_owned(),
                };
                let mut out = String::new();
                text.chars().for_each(|c| accent.put(c, &mut out));
                self.bounded(out)
            }
        }
    }

    /// `math_node_to_text`.
    fn formula(&self, body: &[Node], display: Display) -> Written {
        let text = self.list(body, Mode::Formula)?;
        let text = text.trim();
        match display {
            Display::Inline => Ok(text.to_owned()),
            Display::Block => self.bounded(format!("\n    {}\n", text.replace('\n', "\n    "))),
        }
    }

    /// `fmt_matrix_environment_node`: rows and columns in brackets, with cells as wide as the widest.
    fn matrix(&self, body: &[Node], place: Mode) -> Written {
        let rows = body.split(|node| matches!(node, Node::Macro { name: "\\", .. })).map(|row| {
            let cells = row.split(|node| *node == Node::Special("&")).filter(|cell| !cell.is_empty());
            cells.map(|cell| Ok(self.list(cell, place)?.trim().to_owned())).collect()
        });
        let rows = rows.collect::<Result<Vec<Vec<String>>, Untextable>>()?;
        let widths = rows.iter().flatten().map(|cell| cell.chars().count());
        // Upstream takes the maximum of an empty list here.
        let width = widths.max().ok_or(Untextable::Raised)?;
        let cells = rows.iter().map(Vec::len).sum::<usize>();
        if cells.saturating_mul(width) > self.most {
            return Err(Untextable::TooMuch);
        }
        let row = |cells: &Vec<String>| {
            cells.iter().map(|cell| format!("{cell:>width$}")).collect::<Vec<_>>().join(" ")
        };
        Ok(format!("[ {} ]", rows.iter().map(row).collect::<Vec<_>>().join("; ")))
    }

    fn bounded(&self, text: String) -> Written {
        if text.len() > self.most { Err(Untextable::TooMuch) } else { Ok(text) }
    }
}

/// Python's `template % arguments`. If the number of `%s` is not that of the arguments, upstream warns and
/// keeps the template. If a numbered argument is missing, it fails.
fn fill(template: &str, arguments: &[String]) -> Written {
    let mut parts = template.split("%s");
    let mut out = parts.next().unwrap_or_default().to_owned();
    let rest: Vec<&str> = parts.collect();
    if rest.is_empty() {
        let (before, numbered) = template.split_once("%(").ok_or(Untextable::Raised)?;
        let (number, after) = numbered.split_once(")s").ok_or(Untextable::Raised)?;
        let at: usize = number.parse().map_err(|_| Untextable::Raised)?;
        let argument = arguments.get(at.wrapping_sub(1)).ok_or(Untextable::Raised)?;
        return Ok(format!("{before}{argument}{after}"));
    }
    if rest.len() != arguments.len() {
        return Ok(template.to_owned());
    }
    for (argument, part) in arguments.iter().zip(rest) {
        out.push_str(argument);
        out.push_str(part);
    }
    Ok(out)
}

/// Returns the text for characters with a special meaning.
fn special(chars: &str) -> &str {
    match chars {
        "---" => "—",
        "--" => "–",
        "``" => "“",
        "''" => "”",
        "!`" => "¡",
        "?`" => "¿",
        "&" => "   ",
        "~" => "\u{a0}",
        _ => chars,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str) -> Written {
        latex_to_text(source)
    }

    #[test]
    fn latex_is_written_as_upstream_writes_it() {
        // Each recorded from pylatexenc 2.11.
        for (source, expected) in [
            (r"1\frac12", "1 1/2"),
            (r"\sqrt[3]{5}\pi", "sqrt(5)pi"),
            (r"\frac{1}", "%s/%s1"),
            (r"\mathbb R^{2}", "ℝ^2"),
            (r"\(a \cdot b \text{ for } c\)", "a * b  for  c"),
            (r"\alpha x \%", "αx %"),
            (r"\begin{pmatrix} 1 & 10 \\ 2 \end{pmatrix}", "[  1 10;  2 ]"),
            (r"\begin{cases} a & b \\ c \end{cases}", "a     b \n c"),
            (r"\bar{xy}\not=\dot x", "x\u{305}y\u{305}≠ẋ"),
            (r"\unknown{a}b -- c~d", "ab – c\u{a0}d"),
            (r"a % b", "a"),
            (r"a\\[\sqrt", "a"),
            (r"\d{\bar{x}}", "x\u{323}\u{323}\u{305}"),
        ] {
            assert_eq!(text(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn some_latex_has_no_text() {
        assert_eq!(text(r"\sqrt"), Err(Untextable::Raised));
        assert_eq!(text(r"\frac\sqrt2"), Err(Untextable::Raised));
        assert_eq!(text(r"\begin{pmatrix}\end{pmatrix}"), Err(Untextable::Raised));
        let accents = format!("{}x{}", r"\bar{".repeat(60), "}".repeat(60));
        assert_eq!(text(&accents), Err(Untextable::TooMuch));
        let wide = format!(r"\begin{{pmatrix}}{}{}\end{{pmatrix}}", "a".repeat(50_000), "&b".repeat(25_000));
        assert_eq!(text(&wide), Err(Untextable::TooMuch));
    }
}
