//! Table of results for a comparison that grew after earlier looks.

use super::{Cell, Column, Shape, Table, arm};
use crate::compare::level;
use crate::number;
use crate::report::{Asked, Estimate, LookedAt, Report};
use crate::statistics::Bound;

/// Returns a row for each arm and question; `None` if the comparison never grew after a look.
pub(super) fn looks(report: &Report) -> Option<Table> {
    let looks = report.looks.as_ref()?;
    let count = looks.count;
    let [all, fresh, alone] = heads(looks.of_runs);
    let columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("question", "question", Shape::Words),
        Column::new("p", "p (Holm), as if not looked at", Shape::Number),
        Column::new("corrected", &format!("the same × {count}, for {count} looks"), Shape::Number),
        Column::new("all", all, Shape::Estimate),
        Column::new("fresh_seeds", fresh, Shape::Number),
        Column::new("fresh", alone, Shape::Estimate),
        Column::new("fresh_p", "p (Holm) of them alone", Shape::Number),
    ];
    let p = |p: Option<f64>| {
        p.map_or(Cell::None(number::NONE, "Too few seeds for it"), |p| Cell::Number(p, number::p_value(p)))
    };
    let row = |row: &LookedAt| {
        let question = match row.asked {
            Asked::Cost => "cost, than the baseline's",
            Asked::End => "last accuracy, points",
        };
        let value = |value: Option<Estimate>, bound: Option<Bound>| match (value, bound) {
            (Some(value), _) if row.asked == Asked::Cost => Cell::Ratio(value),
            (Some(value), _) => Cell::Estimate(value, number::points),
            (None, Some(Bound { low, high, .. })) if low.or(high).is_some() => Cell::Bound(low, high),
            _ => Cell::None(number::NONE, "There is no seed to compare by, or too few runs got there"),
        };
        vec![
            arm(report, row.arm),
            Cell::Words(question.to_owned()),
            p(row.p),
            p(row.corrected),
            value(row.all, row.bound),
            Cell::count(row.pairs as u64),
            value(row.fresh, row.fresh_bound),
            p(row.fresh_p),
        ]
    };
    let level = level(count);
    let fresh: Vec<String> = looks.fresh.iter().map(u64::to_string).collect();
    let fresh = match fresh.len() {
        0 => "none has run yet".to_owned(),
        n if looks.of_runs => n.to_string(),
        _ => fresh.join(", "),
    };
    let what = if looks.of_runs { "runs" } else { "seeds" };
    let note = format!(
        "“All {what}” has {} intervals, which together hold {} for {count} looks; like p × {count} they hold by the union \
         bound (Bonferroni) if the number of looks does not depend on what was seen. Fresh {what} ({fresh}) were added after \
         the last look, so that it cannot have chosen them; their intervals are {} intervals.",
        number::percent_tick(level),
        number::percent_tick(report.confidence),
        number::percent_tick(report.confidence),
    );
    let title = format!("What holds after {count} looks");
    Some(Table { name: "looks", title, note, rows: looks.rows.iter().map(row).collect(), columns })
}

/// Returns the heads of three columns.
fn heads(of_runs: bool) -> [&'static str; 3] {
    if of_runs {
        ["all runs", "fresh runs of the smaller arm, or pairs", "fresh runs alone"]
    } else {
        ["all seeds", "fresh seeds in common", "fresh seeds alone"]
    }
}
