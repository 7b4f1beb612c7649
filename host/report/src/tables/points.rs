//! Points of the curves as tables, for drawing them elsewhere. A page does not show them.

use super::{Cell, Column, Shape, Table, arm};
use crate::number;
use crate::report::{Report, Told};

/// Returns the accuracy against each axis.
pub(super) fn curves(report: &Report) -> Table {
    let rows = report.curves.iter().flat_map(|curve| {
        curve.points.iter().map(|(cost, accuracy)| {
            vec![
                Cell::Words(curve.axis.key().to_owned()),
                arm(report, curve.arm),
                Cell::Number(*cost, number::cost(*cost)),
                Cell::Estimate(*accuracy, number::percent),
            ]
        })
    });
    table("curves", &["axis", "arm"], "accuracy", rows.collect())
}

/// Returns the shares of runs that have reached a target.
pub(super) fn reached(report: &Report) -> Table {
    let rows = report.targets.iter().flat_map(|target| {
        target.rows.iter().flat_map(move |row| {
            row.curve.iter().map(move |(cost, share)| {
                vec![
                    Cell::Words(target.axis.key().to_owned()),
                    Cell::Words(target.accuracy.to_string()),
                    arm(report, row.arm),
                    Cell::Number(*cost, number::cost(*cost)),
                    Cell::Estimate(*share, number::percent),
                ]
            })
        })
    });
    table("reached", &["axis", "target", "arm"], "share", rows.collect())
}

/// Returns the step statistics over the run.
pub(super) fn trends(report: &Report) -> Table {
    let rows = report.trends.iter().flat_map(|trend| {
        trend.points.iter().map(|(cost, value)| {
            vec![
                Cell::Words(told(trend.told).to_owned()),
                arm(report, trend.arm),
                Cell::Number(*cost, number::cost(*cost)),
                Cell::Estimate(*value, number::percent),
            ]
        })
    });
    table("trends", &["told", "arm"], "value", rows.collect())
}

fn table(name: &'static str, keys: &[&str], value: &str, rows: Vec<Vec<Cell>>) -> Table {
    let mut columns: Vec<Column> = keys.iter().map(|key| Column::new(key, key, Shape::Words)).collect();
    columns.push(Column::new("cost", "cost", Shape::Number));
    columns.push(Column::new(value, value, Shape::Estimate));
    Table { name, title: name.to_owned(), note: String::new(), columns, rows }
}

/// Returns the name of a trend's statistic in report.json.
fn told(told: Told) -> &'static str {
    match told {
        Told::Effective => "effective",
        Told::Useful => "useful",
        Told::Reward => "reward",
        Told::TrainedReward => "trained-reward",
        Told::Age => "age",
    }
}
