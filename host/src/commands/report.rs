//! `allot report`: reports on runs with a page, figures and tables.

use std::path::{Path, PathBuf};

use allot_base::{Error, Exit, Result, did_you_mean};
use allot_report::compare::Question;
use allot_report::report::{Estimate, State};
use allot_report::statistics::Bound;
use allot_report::tuning::Tuning;
use allot_report::{Axis, Report, number, tables};
use clap::{Args, ValueEnum};

use crate::gather;
use crate::screen::Screen;

/// Report on runs: a page, figures and tables, from their records alone
#[derive(Debug, Args)]
pub struct ReportRuns {
    /// Folders of runs, their records, or folders with runs below them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The folder for the report [default: `report` in the first RUN if that has runs below it, else here]
    #[arg(long)]
    out: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
    /// The report as JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print a table instead of the summary, for a paper or a spreadsheet
    #[arg(long)]
    format: Option<Format>,
    /// Print this table; repeatable [default: result]
    #[arg(long = "table", value_name = "NAME", requires = "format")]
    tables: Vec<String>,
}

/// What is asked of runs.
#[derive(Debug, Args)]
pub struct Asked {
    /// The policy that the others are compared with [default: the comparison's, or the first]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Report the cost to this accuracy, from 0 to 1; repeatable
    #[arg(long = "target", value_name = "ACCURACY")]
    targets: Vec<f64>,
    /// The unit of costs: rollouts, tokens, flops, trained-tokens, seconds or optimizer-steps
    #[arg(long)]
    axis: Option<String>,
}

/// What a table is written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// With rules from the package booktabs
    Latex,
    /// As GitHub has it
    Markdown,
    /// Numbers in full, intervals in columns of their own
    Csv,
}

/// Writes the report.
pub fn run(command: &ReportRuns, screen: &mut Screen<'_>) -> Result<Exit> {
    let mut gathered = gather::gather(&command.runs)?;
    command.asked.of(&mut gathered.question)?;
    let first = &command.runs[0];
    let below = first.is_dir() && !first.join("record.jsonl").exists();
    let out = command
        .out
        .clone()
        .unwrap_or_else(|| if below { first.join("report") } else { PathBuf::from("report") });
    screen.draw(format_args!("reading {} runs", gathered.runs.len()));
    let report = gather::report(&gathered, &out)?;
    screen.draw("");
    if let Some(format) = command.format {
        print(&report, format, &command.tables, screen)?;
        tell_place(&out, screen);
    } else {
        tell(&report, &out, command.json, screen)?;
    }
    Ok(Exit::Good)
}

/// Shows a report, or prints it as JSON, and prints its path.
pub fn tell(report: &Report, out: &Path, json: bool, screen: &mut Screen<'_>) -> Result<()> {
    if json {
        screen.say(serde_json::to_string(report).map_err(|e| Error::new(format!("no JSON: {e}")))?);
    } else {
        show(report, screen);
    }
    tell_place(out, screen);
    Ok(())
}

fn tell_place(out: &Path, screen: &mut Screen<'_>) {
    screen.tell(format_args!("the report is in {}", out.join("index.html").display()));
}

impl Asked {
    /// Whether nothing was asked.
    pub fn nothing(&self) -> bool {
        self.baseline.is_none() && self.targets.is_empty() && self.axis.is_none()
    }

    /// Options override the question of a comparison.
    pub fn of(&self, question: &mut Question) -> Result<()> {
        if let Some(target) = self.targets.iter().find(|t| !(**t > 0.0 && **t <= 1.0)) {
            let error =
                Error::new(format!("`--target` is {target}; expected an accuracy above 0 and at most 1"));
            return Err(if *target > 1.0 && *target <= 100.0 {
                error.hint(format!("for {target} %: {}", target / 100.0))
            } else {
                error
            });
        }
        if !self.targets.is_empty() {
            question.targets.clone_from(&self.targets);
        }
        if let Some(key) = &self.axis {
            let keys = Axis::ALL.into_iter().map(Axis::key);
            let unknown =
                || Error::new(format!("there is no axis `{key}`")).hint(did_you_mean(key, keys.clone()));
            question.axis = Some(Axis::of(key).ok_or_else(unknown)?);
        }
        question.baseline = self.baseline.clone().or(question.baseline.take());
        Ok(())
    }
}

/// Prints tables by name, separated by empty lines.
fn print(report: &Report, format: Format, names: &[String], screen: &mut Screen<'_>) -> Result<()> {
    let all = tables::all(report);
    let result = ["result".to_owned()];
    for (i, name) in if names.is_empty() { &result } else { names }.iter().enumerate() {
        let table = all.iter().find(|table| table.name == name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|table| table.name).collect();
            Error::new(format!("this report has no table `{name}`; it has {}", known.join(", ")))
                .hint(did_you_mean(name, known.iter().copied()))
        })?;
        if i > 0 {
            screen.say("");
        }
        let text = match format {
            Format::Latex => table.latex(),
            Format::Markdown => table.markdown(),
            Format::Csv => table.csv(),
        };
        screen.say(text.trim_end());
    }
    Ok(())
}

/// Shows the report: the table, warnings, and the conclusion.
fn show(report: &Report, screen: &mut Screen<'_>) {
    screen.say(&report.title);
    screen.say("");
    for line in table(report) {
        screen.say(line.trim_end());
    }
    for (head, all) in [("warning", &report.warnings), ("note", &report.notes)] {
        if !all.is_empty() {
            screen.say("");
        }
        for words in all {
            screen.say(format_args!("{head}: {words}"));
        }
    }
    for answers in report.answers() {
        screen.say("");
        screen.say(format_args!("{}:", answers.question));
        for (_, finding) in answers.findings {
            screen.say(format_args!("  {:<13} {}.", tables::kind(finding.kind), finding.words));
        }
    }
}

/// Returns the result as a table, one row per arm.
fn table(report: &Report) -> Vec<String> {
    let target = report.targets.iter().find(|t| t.axis == report.axis);
    let goal = target.map(|t| format!("to {}", number::percent_tick(t.accuracy))).unwrap_or_default();
    let axis = report.axis.words();
    let mut head = vec!["policy".to_owned(), "runs".to_owned()];
    if target.is_some() {
        head.extend(["reached".to_owned(), format!("{axis} {goal}"), "than the baseline".to_owned()]);
    }
    head.extend(["accuracy at the end".to_owned(), "difference".to_owned()]);
    let mut rows = vec![head];
    for (i, arm) in report.arms.iter().enumerate() {
        let finished = arm.runs.iter().filter(|run| run.state == State::Finished).count();
        let mut row = vec![arm.name.clone(), format!("{finished}/{}", arm.runs.len())];
        if let Some(target) = target {
            let reached = &target.rows[i];
            let median = reached.median.map_or("not reached".to_owned(), number::cost);
            let ratio = if i == report.baseline {
                None
            } else {
                reached.ratio.map(compared).or_else(|| bounded(reached.bound?))
            };
            row.push(format!("{}/{}", reached.reached, reached.runs));
            row.extend([median, ratio.unwrap_or_else(|| "–".to_owned())]);
        }
        row.push(report.finals.get(i).map_or_else(String::new, |f| ranged(f.last, 100.0, 1)));
        let difference = report.differences.iter().find(|d| d.arm == i);
        row.push(difference.map_or_else(String::new, |d| ranged(d.mean, 100.0, 1)));
        rows.push(row);
    }
    aligned(&rows)
}

/// Aligns rows in columns: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
            if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// Shows the result of a tuning, one row per arm.
pub fn tuned(tuning: &Tuning, screen: &mut Screen<'_>) {
    let table = tables::tuning::winners(tuning);
    let head = table.columns.iter().map(|column| column.head.clone()).collect();
    let cells = |row: &Vec<tables::Cell>| row.iter().map(tables::Cell::words).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(table.rows.iter().map(cells)).collect();
    for line in aligned(&rows) {
        screen.say(line.trim_end());
    }
    screen.say("");
}

/// Returns the bounds of a ratio that has no estimate.
fn bounded(bound: Bound) -> Option<String> {
    let (low, high) = (bound.low.map(number::compared_at_least), bound.high.map(number::compared_at_most));
    let both: Vec<String> = low.into_iter().chain(high).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

/// Returns a ratio of costs with its interval.
pub fn compared(ratio: Estimate) -> String {
    let words = number::compared(ratio.value);
    match ratio.low.zip(ratio.high).map(|(low, high)| number::compared_ends(low, high)) {
        Some((low, high)) => format!("{words} ({low} to {high})"),
        None => words,
    }
}

/// Returns a number with its interval.
fn ranged(estimate: Estimate, times: f64, digits: usize) -> String {
    let value = times * estimate.value;
    if value.is_nan() {
        return "–".to_owned();
    }
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => {
            format!("{value:.digits$} ({:.digits$} to {:.digits$})", times * low, times * high)
        }
        (Some(low), None) => format!("{value:.digits$} ({:.digits$} or more)", times * low),
        _ => format!("{value:.digits$}"),
    }
}
