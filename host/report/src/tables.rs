//! The tables of a report. `page` writes them as HTML; this module writes CSV, Markdown and LaTeX.
//!
//! A cell has its number and its text: readers see the text, and CSV has the full number.

use std::fmt::Write as _;

use crate::number;
use crate::report::{Estimate, Report};

mod costs;
pub mod forecast;
mod frontier;
mod latex;
mod looks;
mod measured;
mod outcome;
mod points;
mod runs;
mod teaching;
pub mod tuning;

pub use outcome::{kind, result};

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name in file names.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// A note for readers.
    pub note: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name in CSV files.
    pub key: String,
    /// Its heading.
    pub head: String,
    /// Type of its cells.
    pub shape: Shape,
}

/// Type of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text: one column of CSV.
    Words,
    /// Numbers: one column.
    Number,
    /// Numbers with intervals: three columns.
    Estimate,
    /// Counts out of a count, as `9/10`: two columns.
    Of,
    /// Counts with their share of the whole: two columns.
    Share,
}

/// A cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// An arm: index and name.
    Arm(usize, String),
    /// Text.
    Words(String),
    /// A hash, of which only the beginning is shown.
    Hash(String),
    /// A number, and its text.
    Number(f64, String),
    /// A number with an interval, either end of which may be unknown, and its format.
    Estimate(Estimate, fn(f64) -> String),
    /// The baseline's cost over the arm's.
    Ratio(Estimate),
    /// Bounds on the ratio instead, one of which may be missing.
    Bound(Option<f64>, Option<f64>),
    /// A count out of another.
    Of(u64, u64),
    /// A count and its share of the whole.
    Share(u64, u64),
    /// No value: the text instead, and the reason.
    None(&'static str, &'static str),
}

/// Returns all tables of a page, the result first, in the page's order.
pub fn all(report: &Report) -> Vec<Table> {
    let mut all = vec![result(report)];
    all.extend(looks::looks(report));
    all.extend([
        costs::targets(report),
        costs::other_targets(report),
        outcome::differences(report),
        outcome::finals(report),
        outcome::parts(report),
        costs::uses(report),
        costs::spending(report),
    ]);
    all.extend(frontier::frontier(report));
    all.extend(teaching::teaching(report));
    all.extend(measured::measured(report));
    all.extend(report.tuning.iter().flat_map(|t| [tuning::winners(t), tuning::trials(t)]));
    all.extend([runs::runs(report), runs::arms(report), runs::differing(report), runs::shared(report)]);
    all
}

/// Returns the tables as CSV files, with the points of the figures: name and content.
pub fn csv(report: &Report) -> Vec<(String, String)> {
    let drawn = [points::curves(report), points::reached(report), points::trends(report)];
    all(report).iter().chain(&drawn).map(|t| (format!("{}.csv", t.name), t.csv())).collect()
}

/// Returns the result as Markdown: verdicts, warnings, notes and the table.
pub fn markdown(report: &Report) -> String {
    let table = result(report);
    let mut text = format!("# {}\n\n", plain(&report.title));
    for answers in report.answers() {
        for (_, finding) in answers.findings {
            let word = kind(finding.kind);
            _ = writeln!(text, "- {}: **{word}**. {}.", plain(&answers.question), sentence(&finding.words));
        }
    }
    for warning in &report.warnings {
        _ = writeln!(text, "- **Warning**: {}", sentence(warning));
    }
    for note in &report.notes {
        _ = writeln!(text, "- Note: {}", sentence(note));
    }
    _ = writeln!(text, "\n{}", table.markdown());
    if !table.note.is_empty() {
        _ = writeln!(text, "{}", plain(&table.note));
    }
    text
}

impl Table {
    /// Returns the table as CSV (RFC 4180, but plain line ends). Numbers are in full; unknown ones empty.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        let heads = self.columns.iter().flat_map(Column::heads);
        line(&mut text, heads);
        for row in &self.rows {
            let fields = self.columns.iter().zip(row).flat_map(|(column, cell)| {
                let mut fields = cell.fields();
                fields.resize(column.heads().len(), String::new());
                fields
            });
            line(&mut text, fields);
        }
        text
    }

    /// Returns the table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("|");
        for column in &self.columns {
            _ = write!(text, " {} |", plain(&column.head));
        }
        text.push_str("\n|");
        for column in &self.columns {
            text.push_str(if column.shape == Shape::Words { "---|" } else { "---:|" });
        }
        for row in &self.rows {
            text.push_str("\n|");
            for cell in row {
                _ = write!(text, " {} |", plain(&cell.words()));
            }
        }
        text.push('\n');
        text
    }
}

impl Column {
    /// Returns a column.
    pub fn new(key: &str, head: &str, shape: Shape) -> Self {
        Self { key: key.to_owned(), head: head.to_owned(), shape }
    }

    /// Names of its columns in CSV.
    fn heads(&self) -> Vec<String> {
        let ends: &[&str] = match self.shape {
            Shape::Words | Shape::Number => &[""],
            Shape::Estimate => &["", "_low", "_high"],
            Shape::Of => &["", "_of"],
            Shape::Share => &["", "_share"],
        };
        ends.iter().map(|end| format!("{}{end}", self.key)).collect()
    }
}

impl Cell {
    /// Returns a cell for an accuracy or another share.
    pub fn percent(value: f64) -> Self {
        Self::Number(value, number::percent(value))
    }

    /// Returns a cell for a cost, if known.
    pub fn cost(value: Option<f64>) -> Self {
        value.map_or(Self::None(number::NONE, "This run does not know it"), |v| {
            Self::Number(v, number::cost(v))
        })
    }

    /// Returns a cell for a count.
    pub fn count(count: u64) -> Self {
        Self::Number(count as f64, number::count(count))
    }

    /// Returns its text on one line.
    pub fn words(&self) -> String {
        match self.lines() {
            (first, Some(second)) => format!("{first} {second}"),
            (first, None) => first,
        }
    }

    /// Returns its text: the number, and a second line, if there is one.
    pub fn lines(&self) -> (String, Option<String>) {
        match self {
            Self::Arm(_, words) | Self::Words(words) | Self::Number(_, words) => (words.clone(), None),
            Self::Hash(whole) => (whole.chars().take(12).collect(), None),
            Self::None(words, _) => ((*words).to_owned(), None),
            Self::Of(part, whole) => (format!("{part}/{whole}"), None),
            Self::Share(part, whole) => {
                (number::count(*part), Some(format!("({})", number::percent(number::share(*part, *whole)))))
            }
            Self::Bound(low, high) => {
                let (low, high) = (low.map(number::compared_at_least), high.map(number::compared_at_most));
                match (low, high) {
                    (Some(low), high) => (low, high),
                    (None, high) => (high.unwrap_or_else(|| number::NONE.to_owned()), None),
                }
            }
            Self::Ratio(Estimate { value, low, high }) => {
                let interval = low.zip(*high).map(|(low, high)| {
                    let (low, high) = number::compared_ends(low, high);
                    format!("[{low}, {high}]")
                });
                (number::compared(*value), interval)
            }
            Self::Estimate(estimate, words) => {
                // The number already has the unit.
                let bare = |v| words(v).trim_end_matches(['%', '\u{a0}', '×']).to_owned();
                let end = |end: Option<f64>| end.map_or_else(|| number::NONE.to_owned(), bare);
                let known = estimate.low.is_some() || estimate.high.is_some();
                let interval = known.then(|| format!("[{}, {}]", end(estimate.low), end(estimate.high)));
                (words(estimate.value), interval)
            }
        }
    }

    /// Returns its full numbers, for CSV.
    fn fields(&self) -> Vec<String> {
        let full = |v: f64| if v.is_finite() { v.to_string() } else { String::new() };
        match self {
            Self::Arm(_, words) | Self::Words(words) | Self::Hash(words) => vec![words.clone()],
            Self::Number(value, _) => vec![full(*value)],
            Self::Estimate(e, _) | Self::Ratio(e) => {
                [Some(e.value), e.low, e.high].map(|v| v.map_or_else(String::new, full)).to_vec()
            }
            Self::Bound(low, high) => [None, *low, *high].map(|v| v.map_or_else(String::new, full)).to_vec(),
            Self::Of(part, whole) => vec![part.to_string(), whole.to_string()],
            Self::Share(part, whole) => vec![part.to_string(), full(number::share(*part, *whole))],
            Self::None(..) => Vec::new(),
        }
    }
}

/// Returns the cell of an arm.
fn arm(report: &Report, arm: usize) -> Cell {
    Cell::Arm(arm, report.arms.get(arm).map_or_else(|| "?".to_owned(), |a| a.name.clone()))
}

/// Writes a line of CSV.
fn line(text: &mut String, fields: impl Iterator<Item = String>) {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            text.push(',');
        }
        if field.contains(['"', ',', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
            _ = write!(text, "\"{}\"", field.replace('"', "\"\""));
        } else {
            text.push_str(&field);
        }
    }
    text.push('\n');
}

/// Escapes a sentence for Markdown, except for code between backticks.
fn sentence(text: &str) -> String {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return plain(text);
    }
    let words = pieces.iter().enumerate().map(|(i, piece)| {
        if i % 2 == 1 { format!("`{}`", piece.replace(['\n', '\r'], " ")) } else { plain(piece) }
    });
    words.collect()
}

/// Escapes text for Markdown.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '\n' | '\r' => safe.push(' '),
            '|' | '*' | '_' | '`' | '\\' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}
