//! Share of runs that have reached a target by a cost: step curves, one plot for each target.

use super::Size;
use super::accuracy::{Line, Plot, row};
use super::legend;
use super::panel::{self, Span};
use crate::colour;
use crate::number;
use crate::report::{Estimate, Reached, Report, Target};

/// From this many arms on, intervals overlap and are only in the table.
const CROWD: usize = 4;

/// Draws the figure; `None` if there are no targets on the main axis.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let targets: Vec<&Target> =
        report.targets.iter().filter(|t| t.axis == report.axis && !t.rows.is_empty()).collect();
    let above: Vec<String> = targets
        .iter()
        .map(|t| format!("share of runs that have reached {}", number::percent_tick(t.accuracy)))
        .collect();
    let farthest = targets
        .iter()
        .flat_map(|t| t.rows.iter().map(|r| panel::farthest(&r.curve)).chain([t.horizon]))
        .filter(|x| x.is_finite())
        .fold(0.0, f64::max);
    let plots: Vec<(Plot, Vec<Line>)> = targets
        .iter()
        .zip(&above)
        .map(|(target, above)| {
            let plot = Plot {
                x: Span::costs(farthest),
                y: Span::all_shares(),
                above,
                below: report.axis.words(),
                height: if size == Size::Wide { 250.0 } else { 190.0 },
            };
            (plot, target.rows.iter().map(|r| line(report, target, r)).collect())
        })
        .collect();
    if plots.is_empty() {
        return None;
    }
    let told = format!(
        "Stairs: share of runs that have reached each target by {}, for {}. The numbers are in the tables.",
        report.axis.words(),
        super::arms(report)
    );
    row(size, &plots, &legend::arms(report), &told)
}

/// Returns the step curve of an arm, at least to the horizon.
fn line(report: &Report, target: &Target, reached: &Reached) -> Line {
    let bands = report.arms.len() < CROWD;
    let mut points = Vec::new();
    let mut before = Estimate { value: 0.0, low: None, high: None };
    if bands && reached.curve.iter().any(|(_, e)| e.low.is_some()) {
        before = Estimate { value: 0.0, low: Some(0.0), high: Some(0.0) };
    }
    points.push((0.0, before));
    for (cost, share) in &reached.curve {
        points.push((*cost, before));
        before = if bands { *share } else { Estimate { low: None, high: None, ..*share } };
        points.push((*cost, before));
    }
    points.push((target.horizon.max(panel::farthest(&reached.curve)), before));
    let name = report.arms.get(reached.arm).map_or_else(String::new, |a| a.name.clone());
    Line { name, ink: colour::of(report.baseline, reached.arm), points }
}
