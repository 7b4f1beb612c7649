//! Table of the policies' own metrics.

use std::collections::BTreeMap;

use super::{Cell, Column, Shape, Table, arm};
use crate::report::{Arm, Measured, Report};

/// Returns a row for each metric of each arm; `None` if there are no metrics.
pub(super) fn measured(report: &Report) -> Option<Table> {
    let columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("metric", "metric", Shape::Words),
        Column::new("calls", "calls with it", Shape::Number),
        Column::new("mean", "mean", Shape::Number),
        Column::new("last", "at the end", Shape::Number),
    ];
    let rows: Vec<Vec<Cell>> = report
        .arms
        .iter()
        .enumerate()
        .flat_map(|(place, of)| {
            by_name(of).into_iter().map(move |(name, runs)| {
                let mean = |of: fn(&Measured) -> f64| {
                    let value = runs.iter().map(|m| of(m)).sum::<f64>() / runs.len() as f64;
                    Cell::Number(value, plain(value))
                };
                let calls = Cell::count(runs.iter().map(|m| m.calls).sum());
                let name = Cell::Words(name.to_owned());
                vec![arm(report, place), name, calls, mean(|m| m.mean), mean(|m| m.last)]
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        name: "measured",
        title: "What the policies measured".to_owned(),
        note: "Each policy's own metrics, under the names that it gives them: the mean over its calls and the last value, \
               averaged over the arm's runs."
            .to_owned(),
        columns,
        rows,
    })
}

/// Returns an arm's metrics by name, run by run.
fn by_name(arm: &Arm) -> BTreeMap<&str, Vec<&Measured>> {
    let mut all: BTreeMap<&str, Vec<&Measured>> = BTreeMap::new();
    for measured in arm.runs.iter().flat_map(|run| &run.measured) {
        all.entry(&measured.name).or_default().push(measured);
    }
    all
}

/// Formats a number of unknown unit with four digits.
fn plain(value: f64) -> String {
    let digits = if value == 0.0 || !value.is_finite() { 0.0 } else { value.abs().log10().floor() };
    if !(-4.0..7.0).contains(&digits) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.*}", (3.0 - digits).clamp(0.0, 7.0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_four_digits_whatever_it_measures() {
        let all = [0.0, 1.0, -0.5, 12.345_67, 123_456.0, 0.000_123_45, 1e-9, 3e12, f64::NAN];
        let words = ["0", "1", "-0.5", "12.35", "123456", "0.0001234", "1.000e-9", "3.000e12", "NaN"];
        assert_eq!(all.map(plain), words);
    }
}
