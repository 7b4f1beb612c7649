//! Table of costs on three axes.

use super::{Cell, Column, Shape, Table, arm};
use crate::frontier::{Frontier, Row};
use crate::number;
use crate::report::Report;

const PARTLY: &str = "Not all of its runs reached the target";

/// Returns the costs of each arm on three axes, and whether it is on the front.
pub(super) fn frontier(report: &Report) -> Option<Table> {
    let frontier = Frontier::of(report)?;
    let mut columns =
        vec![Column::new("arm", "arm", Shape::Words), Column::new("reached", "reached", Shape::Of)];
    for axis in &frontier.axes {
        columns.push(Column::new(axis.key(), axis.words(), Shape::Estimate));
        columns.push(Column::new(&format!("{}_ratio", axis.key()), "than the baseline", Shape::Estimate));
    }
    columns.push(Column::new("front", "no arm is cheaper on all", Shape::Words));
    let row = |row: &Row| {
        let mut cells = vec![arm(report, row.arm), Cell::Of(row.reached.0 as u64, row.reached.1 as u64)];
        for (paid, ratio) in row.paid.iter().zip(&row.ratios) {
            let none = Cell::None(number::NONE, PARTLY);
            cells.push(paid.map_or(none.clone(), |paid| Cell::Estimate(paid, number::cost)));
            cells.push(match ratio {
                Some(ratio) => Cell::Ratio(*ratio),
                None if row.arm == report.baseline => {
                    Cell::None(number::NONE, "The baseline is not compared with itself")
                }
                None => none,
            });
        }
        cells.push(Cell::Words(if row.on_front { "yes" } else { "no" }.to_owned()));
        cells
    };
    let resolution = report.resolution.map_or_else(String::new, |share| {
        format!(
            " Between two evaluations, a run spent {} of its cost to the target on the median.",
            number::percent(share)
        )
    });
    Some(Table {
        name: "frontier",
        title: format!("Cost to {} on three axes", number::percent_tick(frontier.accuracy)),
        note: format!(
            "Geometric means over runs. A cost is what a run had spent at its first score at or above the target; \
             nothing is interpolated.{resolution}"
        ),
        rows: frontier.rows.iter().map(row).collect(),
        columns,
    })
}
