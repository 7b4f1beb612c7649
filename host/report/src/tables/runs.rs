//! Tables of the comparison: every run, the arms, their differences and what they share.

use super::{Cell, Column, Shape, Table, arm};
use crate::report::{Report, State};

/// Returns every run.
pub(super) fn runs(report: &Report) -> Table {
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("seed", "seed", Shape::Number),
        Column::new("state", "state", Shape::Words),
        Column::new("reason", "how it ended", Shape::Words),
        Column::new("steps", "steps", Shape::Number),
        Column::new("updates", "updates", Shape::Number),
    ];
    columns.extend(
        report
            .axes
            .iter()
            .map(|axis| Column::new(&axis.key().replace('-', "_"), axis.words(), Shape::Number)),
    );
    columns.extend([
        Column::new("start", "at the start", Shape::Number),
        Column::new("last", "last", Shape::Number),
        Column::new("best", "best", Shape::Number),
        Column::new("run", "folder", Shape::Words),
    ]);
    let rows = report.arms.iter().enumerate().flat_map(|(place, a)| {
        a.runs.iter().map(move |run| {
            let mut row = vec![
                arm(report, place),
                Cell::Number(run.seed as f64, run.seed.to_string()),
                Cell::Words(state(run.state).to_owned()),
                Cell::Words(run.reason.clone()),
                Cell::count(u64::from(run.steps)),
                Cell::count(run.updates),
            ];
            row.extend(report.axes.iter().map(|axis| Cell::cost(run.costs.on(*axis))));
            row.extend([run.start, run.last, run.best].map(Cell::percent));
            row.push(Cell::Words(run.run.clone()));
            row
        })
    });
    Table {
        name: "runs",
        title: "Every run".to_owned(),
        note: "Unfinished and failed runs count in curves and in costs to target, as far as they go, and in \
               nothing else."
            .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the final state of a run in a word.
fn state(state: State) -> &'static str {
    match state {
        State::Finished => "finished",
        State::Unfinished => "unfinished",
        State::Failed => "failed",
    }
}

/// Returns the arms: their policies and settings.
pub(super) fn arms(report: &Report) -> Table {
    let columns = ["arm", "policy", "version", "sha256", "settings"];
    let rows = report.arms.iter().enumerate().map(|(place, a)| {
        let settings: Vec<String> =
            a.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        vec![
            arm(report, place),
            Cell::Words(a.policy.clone()),
            Cell::Words(a.version.clone()),
            Cell::Hash(a.sha256.clone()),
            Cell::Words(settings.join(", ")),
        ]
    });
    Table {
        name: "arms",
        title: "The arms".to_owned(),
        note: "A policy with its settings each.".to_owned(),
        rows: rows.collect(),
        columns: columns.iter().map(|name| Column::new(name, name, Shape::Words)).collect(),
    }
}

/// Returns the keys in which the arms differ.
pub(super) fn differing(report: &Report) -> Table {
    let mut columns =
        vec![Column::new("key", "what", Shape::Words), Column::new("own", "belongs to", Shape::Words)];
    columns.extend(report.arms.iter().map(|a| Column::new(&a.name, &a.name, Shape::Words)));
    let mut differing: Vec<_> = report.differing.iter().collect();
    differing.sort_by_key(|d| d.own);
    let rows = differing.into_iter().map(|d| {
        let mut row = vec![
            Cell::Words(d.key.clone()),
            Cell::Words(if d.own { "the policy" } else { "the comparison" }.to_owned()),
        ];
        row.extend((0..report.arms.len()).map(|place| match d.values.get(place) {
            Some(value) if !value.is_empty() => Cell::Words(value.clone()),
            _ => Cell::None("–", "Not set"),
        }));
        row
    });
    Table {
        name: "differing",
        title: "What differs between the arms".to_owned(),
        note: "Policy settings may differ; all others should be the same. Those that differ come first."
            .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the values that all runs share.
pub(super) fn shared(report: &Report) -> Table {
    let rows =
        report.shared.iter().map(|(name, value)| [name, value].map(|w| Cell::Words(w.clone())).to_vec());
    Table {
        name: "shared",
        title: "What all runs share".to_owned(),
        note: String::new(),
        rows: rows.collect(),
        columns: ["name", "value"].map(|name| Column::new(name, name, Shape::Words)).to_vec(),
    }
}
