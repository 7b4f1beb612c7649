//! The map of a grid: a cell for each combination of values; better cells are darker.

use super::Size;
use super::sheet::{Anchor, Sheet, width};
use crate::colour;
use crate::number::{self, shown};
use crate::tables::tuning::short;
use crate::tuning::{Measure, Trial, TunedArm, Tuning, ranked};

const CELL: f64 = 26.0;
/// Colour of the best cell.
const BEST: [f64; 3] = [106.0, 168.0, 210.0];

/// Draws the figure; `None` if there is no trial.
pub fn draw(tuning: &Tuning, size: Size) -> Option<String> {
    let maps: Vec<Map> = tuning.arms.iter().filter_map(Map::of).collect();
    if maps.is_empty() {
        return None;
    }
    let height: f64 = maps.iter().map(|map| 64.0 + CELL * map.rows.len() as f64 + 18.0).sum();
    let mut sheet = Sheet::new(size.width(), height);
    let mut top = 0.0;
    for map in &maps {
        map.draw(&mut sheet, tuning, top, size);
        top += 64.0 + CELL * map.rows.len() as f64 + 18.0;
    }
    let names: Vec<&str> = tuning.arms.iter().map(|arm| arm.name.as_str()).collect();
    Some(sheet.finish(&format!(
        "A map of all combinations that were tried for {}. The numbers are in the tables.",
        names.join(", ")
    )))
}

/// Combinations of an arm: the values of one setting across, all others down.
struct Map<'t> {
    arm: &'t TunedArm,
    /// The setting across: the one with most values.
    across: usize,
    columns: Vec<String>,
    rows: Vec<String>,
}

impl<'t> Map<'t> {
    fn of(arm: &'t TunedArm) -> Option<Self> {
        let values = |key: usize| {
            let mut all: Vec<String> = Vec::new();
            for trial in arm.trials.iter().filter(|t| t.number > 0) {
                let value = shown(&trial.values[key]);
                if !all.contains(&value) {
                    all.push(value);
                }
            }
            all
        };
        let across = (0..arm.ranges.len()).max_by_key(|key| (values(*key).len(), usize::MAX - key))?;
        let mut map = Self { arm, across, columns: Vec::new(), rows: Vec::new() };
        let mut trials: Vec<&Trial> = arm.trials.iter().filter(|t| t.number > 0).collect();
        // In the order of the grid; the declared setting comes last.
        trials.push(&arm.trials[0]);
        for trial in trials {
            let (column, row) = (map.column(trial), map.row(trial));
            if !map.columns.contains(&column) {
                map.columns.push(column);
            }
            if !map.rows.contains(&row) {
                map.rows.push(row);
            }
        }
        (!map.columns.is_empty()).then_some(map)
    }

    fn column(&self, trial: &Trial) -> String {
        shown(&trial.values[self.across])
    }

    fn row(&self, trial: &Trial) -> String {
        let others = self.arm.ranges.iter().zip(&trial.values).enumerate().filter(|(i, _)| *i != self.across);
        others
            .map(|(_, (tuned, value))| format!("{} {}", short(&tuned.key), shown(value)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn draw(&self, sheet: &mut Sheet, tuning: &Tuning, top: f64, size: Size) {
        let most = if size == Size::Wide { 330.0 } else { 130.0 };
        let left = (self.rows.iter().map(|row| width(row)).fold(40.0, f64::max) + 20.0).min(most);
        let wide = ((size.width() - left - 10.0) / self.columns.len() as f64).min(110.0);
        sheet.name((8.0, top + 12.0), Anchor::Start, &self.arm.name, size.width() - 16.0);
        sheet.text_in(
            (left, top + 32.0),
            Anchor::Start,
            short(&self.arm.ranges[self.across].key),
            colour::FAINT,
        );
        for (i, column) in self.columns.iter().enumerate() {
            sheet.name((left + wide * (i as f64 + 0.5), top + 50.0), Anchor::Middle, column, wide - 4.0);
        }
        for (i, row) in self.rows.iter().enumerate() {
            let y = top + 64.0 + CELL * i as f64;
            sheet.name((left - 8.0, y + CELL / 2.0), Anchor::End, row, left - 16.0);
        }
        let rung: Vec<(u32, Measure)> = self.arm.trials.iter().map(|t| (t.number, t.last())).collect();
        let order = ranked(&rung);
        for trial in &self.arm.trials {
            let column = self.columns.iter().position(|c| *c == self.column(trial));
            let row = self.rows.iter().position(|r| *r == self.row(trial));
            let (Some(column), Some(row)) = (column, row) else { continue };
            let place = order.iter().position(|n| *n == trial.number).unwrap_or(0);
            let good = 1.0 - place as f64 / (order.len().max(2) - 1) as f64;
            let corner = (left + wide * column as f64 + 1.0, top + 64.0 + CELL * row as f64 + 1.0);
            sheet.bar(corner, (wide - 2.0, CELL - 2.0), &ink(good));
            let middle = (corner.0 + (wide - 2.0) / 2.0, corner.1 + (CELL - 2.0) / 2.0);
            let declared = if trial.number == 0 { "*" } else { "" };
            sheet.name(
                middle,
                Anchor::Middle,
                &format!("{}{declared}", words(tuning, trial.last())),
                wide - 4.0,
            );
        }
    }
}

/// Formats a trial's result: its cost or, if it did not reach the target, its accuracy.
fn words(tuning: &Tuning, of: Measure) -> String {
    match (tuning.goal.target, of.cost, of.accuracy) {
        (_, _, None) => "failed".to_owned(),
        (Some(_), Some(cost), _) if of.is_settled() => number::cost(cost),
        (_, _, Some(accuracy)) => number::percent(accuracy),
    }
}

/// Returns a colour from white to the darkest on which text is readable.
fn ink(good: f64) -> String {
    let [r, g, b] = BEST.map(|end| (245.0 + (end - 245.0) * good).round().clamp(0.0, 255.0) as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}
