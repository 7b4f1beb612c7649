//! Tables of the parts of the data that each arm taught, and their accuracies.

use super::{Cell, Column, Shape, Table, arm};
use crate::number;
use crate::report::{PartBy, Report, Taught};

/// Returns the tables by source of prompts and by their first visit.
pub(super) fn teaching(report: &Report) -> Vec<Table> {
    [PartBy::Source, PartBy::FirstVisit].into_iter().filter_map(|by| table(report, by)).collect()
}

fn table(report: &Report, by: PartBy) -> Option<Table> {
    let rows: Vec<&Taught> = report.taught.iter().filter(|taught| taught.by == by).collect();
    if rows.is_empty() {
        return None;
    }
    let source = by == PartBy::Source;
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("part", if source { "source" } else { "prompts with" }, Shape::Words),
        Column::new("prompts", "prompts", Shape::Number),
        Column::new("seen", "visited", Shape::Number),
        Column::new("taught", "ever taught", Shape::Number),
        Column::new("sampled", "of the rollouts", Shape::Number),
        Column::new("learned", "of what was learned from", Shape::Number),
        Column::new(
            "start",
            if source { "accuracy at the start" } else { "right on the first visit" },
            Shape::Estimate,
        ),
        Column::new("end", if source { "at the end" } else { "on the last one" }, Shape::Estimate),
    ];
    columns.retain(|column| source || column.key != "prompts");
    let row = |taught: &&Taught| {
        let mut row = vec![arm(report, taught.arm), Cell::Words(taught.part.clone())];
        row.extend(taught.prompts.map(Cell::count));
        row.extend([Cell::cost(Some(taught.seen)), Cell::cost(Some(taught.taught))]);
        row.extend([Cell::percent(taught.sampled), Cell::percent(taught.learned)]);
        row.push(
            taught.start.map_or(Cell::None(number::NONE, NOT_HELD), |e| Cell::Estimate(e, number::percent)),
        );
        let none = if source { NOT_HELD } else { "None of them was visited again" };
        row.push(taught.end.map_or(Cell::None(number::NONE, none), |e| Cell::Estimate(e, number::percent)));
        row
    };
    let (name, title, note) = if source {
        ("sources", "What was taught, by source", "Accuracies are those of held-out problems of the source.")
    } else {
        (
            "first-visits",
            "What was taught, by the first visit to a prompt",
            "Right answers among the rollouts of a prompt's first step, and of the last step in which it was sampled again.",
        )
    };
    Some(Table {
        name,
        title: title.to_owned(),
        note: format!(
            "Means over runs. A prompt was taught if a rollout of it was trained on with an advantage. {note}"
        ),
        rows: rows.iter().map(row).collect(),
        columns,
    })
}

const NOT_HELD: &str = "No problem of it is held out";
