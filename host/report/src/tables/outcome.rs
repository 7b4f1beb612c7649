//! Tables of outcomes: the result, final accuracies, and differences to the baseline.

use super::{Cell, Column, Shape, Table, arm};
use crate::number;
use crate::report::{Estimate, Finding, Outcome, Reached, Report, Target};

const BASELINE: &str = "The baseline is not compared with itself";
const FEW: &str = "Too few seeds for it";
const APART: &str = " Rows without a p-value of sign flips are of unpaired runs: over all finished ones, by Welch's t-test, with \
                     the runs needed of each arm.";

/// Returns the result: a row for each arm, with costs to the first target on the main axis. It has only the
/// most important numbers, to fit a page; other tables have the rest.
pub fn result(report: &Report) -> Table {
    let target = report.targets.iter().find(|t| t.axis == report.axis);
    let mut columns = vec![Column::new("arm", "arm", Shape::Words)];
    if target.is_none() {
        columns.push(Column::new("runs", "runs", Shape::Number));
    }
    if let Some(target) = target {
        let accuracy = number::percent_tick(target.accuracy);
        let axis = report.axis.words();
        columns.extend([
            Column::new("reached", &format!("reached {accuracy}"), Shape::Of),
            Column::new("median", &format!("median {axis} to it"), Shape::Estimate),
            Column::new("ratio", "than the baseline", Shape::Estimate),
            Column::new("cost_holm", "p (Holm)", Shape::Number),
            Column::new("cost_verdict", "cost", Shape::Words),
        ]);
    }
    columns.extend([
        Column::new("last", "last accuracy", Shape::Estimate),
        Column::new("difference", "difference, points", Shape::Estimate),
        Column::new("holm", "p (Holm)", Shape::Number),
        Column::new("verdict", "accuracy", Shape::Words),
    ]);
    let rows = (0..report.arms.len()).map(|place| {
        let mut row = vec![arm(report, place)];
        if target.is_none() {
            row.push(Cell::count(report.arms[place].runs.len() as u64));
        }
        if let Some(target) = target {
            row.extend(to_target(report, target, place));
        }
        row.extend(at_the_end(report, place));
        row
    });
    let note = target.map_or_else(
        || "No target was set, so there are no costs to one.".to_owned(),
        |target| {
            format!(
                "Costs are in {} to an accuracy of {}. Brackets are {} intervals; “at least” and “at most” \
                 are bounds at that level, where some runs did not get there.",
                report.axis.words(),
                number::percent_tick(target.accuracy),
                number::percent_tick(report.confidence)
            )
        },
    );
    Table { name: "result", title: "The result".to_owned(), note, rows: rows.collect(), columns }
}

/// Returns the cells of the result for costs to a target.
fn to_target(report: &Report, target: &Target, place: usize) -> [Cell; 5] {
    let Some(reached) = target.rows.iter().find(|r| r.arm == place) else {
        return [(); 5].map(|()| Cell::None(number::NONE, "None of its runs was evaluated"));
    };
    let verdict = report.verdicts.iter().find(|v| v.arm == place).and_then(|v| v.cost.as_ref());
    [
        Cell::Of(reached.reached as u64, reached.runs as u64),
        median(reached),
        ratio(report, reached),
        tested(report, reached),
        found(report, place, verdict),
    ]
}

/// Returns the cell for the word of a finding.
fn found(report: &Report, place: usize, finding: Option<&Finding>) -> Cell {
    match finding {
        Some(finding) => Cell::Words(kind(finding.kind).to_owned()),
        None if place == report.baseline => Cell::None("baseline", BASELINE),
        None => Cell::None(number::NONE, "Nothing to judge by"),
    }
}

/// Returns the p-value of the cost's difference to the baseline's.
pub(super) fn tested(report: &Report, reached: &Reached) -> Cell {
    if reached.arm == report.baseline { Cell::None(number::NONE, BASELINE) } else { p_value(reached.holm) }
}

/// Returns the median, or that it was not reached.
pub(super) fn median(reached: &Reached) -> Cell {
    let whole =
        reached.median.map(|value| Estimate { value, low: reached.median_low, high: reached.median_high });
    whole.map_or(Cell::None("not reached", "Fewer than half of the runs reached the target"), |median| {
        Cell::Estimate(median, number::cost)
    })
}

/// Returns the ratio of costs, or its bounds.
pub(super) fn ratio(report: &Report, reached: &Reached) -> Cell {
    if reached.arm == report.baseline {
        return Cell::None("baseline", BASELINE);
    }
    let Some(bound) = reached.bound else {
        let why = "A run was there before its first step, or runs are unpaired and some did not get there";
        return reached.ratio.map_or(Cell::None(number::NONE, why), Cell::Ratio);
    };
    match (bound.low, bound.high) {
        (None, None) => {
            Cell::None(number::NONE, "Some runs did not get there, and too few pairs bound the ratio")
        }
        (low, high) => Cell::Bound(low, high),
    }
}

fn at_the_end(report: &Report, place: usize) -> Vec<Cell> {
    let last = report.finals.iter().find(|f| f.arm == place);
    let none = || Cell::None(number::NONE, "None of its runs finished");
    let base = place == report.baseline;
    let difference = report.differences.iter().find(|d| d.arm == place && !base);
    let why = if base { BASELINE } else { "No finished run to compare with one of the baseline" };
    let verdict = report.verdicts.iter().find(|v| v.arm == place).map(|v| &v.end);
    vec![
        last.map_or_else(none, |f| Cell::Estimate(f.last, number::percent)),
        difference.map_or(Cell::None(number::NONE, why), |d| Cell::Estimate(d.mean, number::points)),
        difference.map_or(Cell::None(number::NONE, why), |d| p_value(d.holm)),
        found(report, place, verdict),
    ]
}

/// Returns the word of a verdict.
pub fn kind(kind: Outcome) -> &'static str {
    match kind {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::Same => "same",
        Outcome::Inconclusive => "inconclusive",
    }
}

fn p_value(p: Option<f64>) -> Cell {
    p.map_or(Cell::None(number::NONE, FEW), |p| Cell::Number(p, number::p_value(p)))
}

/// Returns the differences to the baseline, seed by seed or of unpaired runs.
pub(super) fn differences(report: &Report) -> Table {
    let apart = report.has_unpaired();
    let columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new(
            "seeds",
            if apart { "seeds in common, or runs" } else { "seeds in common" },
            Shape::Number,
        ),
        Column::new("difference", "difference, points", Shape::Estimate),
        Column::new("p", if apart { "p, t-test" } else { "p, paired t-test" }, Shape::Number),
        Column::new("holm", "p, after Holm", Shape::Number),
        Column::new("flip", "p, sign flips", Shape::Number),
        Column::new("needed", "seeds needed", Shape::Number),
    ];
    let rows = report.differences.iter().filter(|d| d.arm != report.baseline).map(|d| {
        vec![
            arm(report, d.arm),
            Cell::count(d.seeds as u64),
            Cell::Estimate(d.mean, number::points),
            p_value(d.p),
            p_value(d.holm),
            p_value(d.flip),
            d.needed.map_or(Cell::None(number::NONE, "More than 1000, or unknown"), Cell::count),
        ]
    });
    let baseline = report.arms.get(report.baseline).map_or("the baseline", |a| a.name.as_str());
    Table {
        name: "differences",
        title: "Differences of the last accuracy, in numbers".to_owned(),
        note: format!(
            "Last accuracy less that of {baseline}, in percentage points, over the seeds that both have \
             finished. “Seeds needed” would tell a difference of this size four times out of five.{}",
            if apart { APART } else { "" }
        ),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the final accuracies.
pub(super) fn finals(report: &Report) -> Table {
    let mut more: Vec<&str> = Vec::new();
    for (name, _) in report.finals.iter().flat_map(|f| &f.more) {
        if !more.contains(&name.as_str()) {
            more.push(name);
        }
    }
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("runs", "finished runs", Shape::Number),
        Column::new("start", "at the start", Shape::Number),
        Column::new("last", "last", Shape::Estimate),
        Column::new("iqm", "middle half of parts and runs", Shape::Estimate),
        Column::new("improvement", "probability of improvement", Shape::Estimate),
        Column::new("best", "best (too good)", Shape::Estimate),
    ];
    columns.extend(more.iter().map(|name| Column::new(name, name, Shape::Estimate)));
    let rows = report.finals.iter().map(|f| {
        let why = if f.arm == report.baseline { BASELINE } else { FEW };
        let mut row = vec![
            arm(report, f.arm),
            Cell::count(f.runs as u64),
            Cell::percent(f.start),
            Cell::Estimate(f.last, number::percent),
            Cell::Estimate(f.iqm, number::percent),
            f.improvement.map_or(Cell::None(number::NONE, why), |p| Cell::Estimate(p, number::percent)),
            Cell::Estimate(f.best, number::percent),
        ];
        row.extend(more.iter().map(|name| {
            f.more
                .iter()
                .find(|(n, _)| n == name)
                .map_or(Cell::None(number::NONE, "Not measured"), |(_, e)| {
                    Cell::Estimate(*e, number::percent)
                })
        }));
        row
    });
    Table {
        name: "finals",
        title: "Accuracy at the end".to_owned(),
        note:
            "Means over finished runs. “Middle half of parts and runs” is the mean of all last accuracies, a \
               number for each part and run, without the lowest and the highest quarter (interquartile mean)."
                .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the accuracy by part: a row for each part and arm.
pub(super) fn parts(report: &Report) -> Table {
    let columns = vec![
        Column::new("part", "part", Shape::Words),
        Column::new("arm", "arm", Shape::Words),
        Column::new("last", "last accuracy", Shape::Estimate),
    ];
    let mut parts: Vec<_> = report.parts.iter().collect();
    let place = |part: &str| report.parts.iter().position(|p| p.part == part);
    parts.sort_by_key(|p| (place(&p.part), p.arm));
    let rows = parts.into_iter().map(|p| {
        vec![Cell::Words(p.part.clone()), arm(report, p.arm), Cell::Estimate(p.last, number::percent)]
    });
    Table {
        name: "parts",
        title: "Last accuracy by part".to_owned(),
        note: "Means over finished runs.".to_owned(),
        rows: rows.collect(),
        columns,
    }
}
