//! A report as a page: one HTML file without scripts, network access or other files.
//!
//! The axis switch is a group of radio buttons, controlled by style alone. Each figure is included twice,
//! and style shows the one that fits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figure;
use crate::number;
use crate::report::Report;
use crate::tables;

mod forecast;
mod grid;
mod picture;
mod reading;
mod table;

const STYLE: &str = include_str!("page/style.css");
/// The page's content security policy: it allows only styles and embedded images.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

pub use forecast::forecast_html;
pub use grid::write_grid;

/// Returns the page as HTML.
pub fn html(report: &Report) -> String {
    let figures = figure::others(report);
    let tables = tables::all(report);
    let drawn = |name: &str| figures.iter().find(|f| f.name == name).map(picture::figure);
    // If a figure already says that there is nothing to show, its table is left out.
    let said = |t: &tables::Table| t.rows.is_empty() && DRAWN.contains(&t.name);
    let told = |name: &str| {
        let table = tables.iter().find(|t| t.name == name && !said(t))?;
        Some(table::table(report.baseline, table))
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (begin(title(report), &(picture::switch_style(report) + &picture::dark_style())))
            body {
                a.skip href="#main" { "Skip to the report" }
                header { (head(report)) }
                nav aria-labelledby="contents" {
                    h2 #contents { "Contents" }
                    ol {
                        @for (id, title) in SECTIONS {
                            @if id == "compared" && report.tuning.is_some() {
                                li { a href="#tuning" { "Tuning" } }
                            }
                            li { a href={ "#" (id) } { (title) } }
                        }
                    }
                }
                main #main tabindex="-1" {
                    section aria-labelledby="short" {
                        h2 #short { (SECTIONS[0].1) }
                        (told("result").unwrap_or_default()) (verdicts(report)) (warnings(report))
                        (told("looks").unwrap_or_default()) (notes(report))
                    }
                    section aria-labelledby="accuracy" {
                        h2 #accuracy { (SECTIONS[1].1) }
                        (picture::switch(report))
                        (told("finals").unwrap_or_default())
                        (drawn("parts").unwrap_or_default()) (told("parts").unwrap_or_default())
                    }
                    section aria-labelledby="targets" {
                        h2 #targets { (SECTIONS[2].1) }
                        (told("frontier").unwrap_or_default())
                        @if report.arms.len() > 1 { (drawn("frontier").unwrap_or_default()) }
                        (drawn("reached").unwrap_or_default()) (told("targets").unwrap_or_default())
                        (told("targets-on-other-axes").unwrap_or_default())
                    }
                    section aria-labelledby="differences" {
                        h2 #differences { (SECTIONS[3].1) }
                        (drawn("differences").unwrap_or_default()) (told("differences").unwrap_or_default())
                    }
                    section aria-labelledby="uses" {
                        h2 #uses { (SECTIONS[4].1) }
                        (drawn("uses").unwrap_or_default()) (told("uses").unwrap_or_default())
                        @for name in ["effect", "rewards", "ages"] { (drawn(name).unwrap_or_default()) }
                        (told("spending").unwrap_or_default())
                        (told("sources").unwrap_or_default()) (told("first-visits").unwrap_or_default())
                        (told("measured").unwrap_or_default())
                    }
                    @if report.tuning.is_some() {
                        section aria-labelledby="tuning" {
                            h2 #tuning { "Tuning" }
                            (told("tuning").unwrap_or_default()) (drawn("sensitivity").unwrap_or_default())
                            (told("trials").unwrap_or_default())
                        }
                    }
                    section aria-labelledby="compared" {
                        h2 #compared { (SECTIONS[5].1) }
                        @for name in ["differing", "arms", "runs", "shared"] {
                            (told(name).unwrap_or_default())
                        }
                    }
                    section.reading aria-labelledby="reading" {
                        h2 #reading { (SECTIONS[6].1) }
                        (reading::reading(report))
                    }
                }
                footer { p { "Made by " code { "allot report" } ", from the records of the runs alone." } }
            }
        }
    };
    page.into_string()
}

/// Writes a report into a folder, which is made if missing: the page, figures as SVG, PDF and PNG, tables
/// as CSV and Markdown, and the numbers as `report.json`. Returns the files written.
pub fn write(report: &Report, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut writer = Writer::new(folder);
    writer.put("index.html", html(report).as_bytes())?;
    let accuracy = report.axes.iter().map(|axis| figure::accuracy(report, *axis));
    for figure in accuracy.chain(figure::others(report)) {
        writer.figure(&figure)?;
    }
    for (name, content) in tables::csv(report) {
        writer.put(&format!("tables/{name}"), content.as_bytes())?;
    }
    writer.put("tables.md", tables::markdown(report).as_bytes())?;
    let mut json = serde_json::to_vec_pretty(report)?;
    json.push(b'\n');
    writer.put("report.json", &json)?;
    Ok(writer.written)
}

/// Writer of the files in a report's folder.
struct Writer<'f> {
    folder: &'f Path,
    written: Vec<PathBuf>,
}

impl<'f> Writer<'f> {
    fn new(folder: &'f Path) -> Self {
        Self { folder, written: Vec::new() }
    }

    fn put(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(self.folder))?;
        fs::write(&path, content)?;
        self.written.push(path);
        Ok(())
    }

    /// Writes a figure as SVG, PNG and PDF, if there is one.
    fn figure(&mut self, figure: &figure::Figure) -> io::Result<()> {
        let Ok(drawing) = &figure.drawing else { return Ok(()) };
        let none = |what: &str| io::Error::other(format!("figure `{}` can't be made a {what}", figure.name));
        self.put(&format!("figures/{}.svg", figure.name), drawing.wide.as_bytes())?;
        let png = figure::png(&drawing.wide).ok_or_else(|| none("PNG"))?;
        self.put(&format!("figures/{}.png", figure.name), &png)?;
        let pdf = figure::pdf(&drawing.wide).ok_or_else(|| none("PDF"))?;
        self.put(&format!("figures/{}.pdf", figure.name), &pdf)
    }
}

/// Tables whose numbers are also in a figure.
const DRAWN: [&str; 4] = ["parts", "targets", "targets-on-other-axes", "differences"];

/// The sections of the page: ids and titles.
const SECTIONS: [(&str, &str); 7] = [
    ("short", "In short"),
    ("accuracy", "Accuracy"),
    ("targets", "Cost to a target"),
    ("differences", "Differences to the baseline"),
    ("uses", "Where the rollouts went"),
    ("compared", "What was compared"),
    ("reading", "How to read this"),
];

/// Returns the head of a page.
fn begin(title: &str, style: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            title { (title) }
            link rel="icon" href="data:,";
            style { (PreEscaped(STYLE)) (PreEscaped(style)) }
        }
    }
}

/// Returns the report's title; a page must have one.
fn title(report: &Report) -> &str {
    if report.title.is_empty() { "Report" } else { &report.title }
}

fn head(report: &Report) -> Markup {
    let runs: usize = report.arms.iter().map(|a| a.runs.len()).sum();
    let many = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    html! {
        h1 { (title(report)) }
        p {
            (many(report.arms.len(), "arm")) " · " (many(runs, "run")) " · costs in " (report.axis.words())
            @if let Some(baseline) = report.arms.get(report.baseline) {
                " · baseline " (table::arm(report.baseline, report.baseline, &baseline.name))
            }
            " · intervals hold " (number::percent_tick(report.confidence))
        }
    }
}

/// Returns the verdicts: a badge for each question and its sentence.
fn verdicts(report: &Report) -> Markup {
    let answers = report.answers();
    html! {
        @if answers.is_empty() {
            p { "There is nothing to compare: no arm has a verdict." }
        }
        @for answers in answers {
            h3 { (answers.question) }
            ul.verdicts {
                @for (arm, finding) in answers.findings {
                    li {
                        @let word = tables::kind(finding.kind);
                        span class={ "kind " (word) } { (word) }
                        @let name = report.arms.get(arm).map_or("?", |a| a.name.as_str());
                        @if finding.words.contains(name) {
                            span { (table::arm(report.baseline, arm, "")) (quoted(&finding.words)) "." }
                        } @else {
                            span { (table::arm(report.baseline, arm, name)) ": " (quoted(&finding.words)) "." }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the reasons why the comparison is unfair.
fn warnings(report: &Report) -> Markup {
    html! {
        @if !report.warnings.is_empty() {
            div.warnings role="region" aria-labelledby="warnings" {
                h3 #warnings { "This is not a fair comparison in every respect" }
                ul { @for warning in &report.warnings { li { (quoted(warning)) } } }
            }
        }
    }
}

/// Returns the notes, folded: they explain numbers and change none.
fn notes(report: &Report) -> Markup {
    let many = report.notes.len();
    html! {
        @if many > 0 {
            details.notes {
                summary { (many) @if many == 1 { " note" } @else { " notes" } }
                ul { @for note in &report.notes { li { (quoted(note)) } } }
            }
        }
    }
}

/// Returns a sentence with text between backticks as code.
fn quoted(sentence: &str) -> Markup {
    let pieces: Vec<&str> = sentence.split('`').collect();
    // An unpaired backtick at the end remains a backtick.
    let pairs = pieces.len() % 2 == 1;
    html! {
        @for (i, piece) in pieces.iter().enumerate() {
            @if i % 2 == 1 && (pairs || i + 1 < pieces.len()) {
                code { (piece) }
            } @else {
                @if i % 2 == 1 { "`" }
                (piece)
            }
        }
    }
}
