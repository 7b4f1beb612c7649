//! Share of the work with an effect, by cost: the effective share of batches, and the useful share of
//! rollouts sampled.

use super::Size;
use super::accuracy::{Line, Plot, row};
use super::legend;
use super::panel::{self, Span};
use crate::colour;
use crate::report::{Report, Told};

/// Draws the figure; `None` if neither share is known.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let plots: Vec<(Plot, Vec<Line>)> = [
        (Told::Effective, "of the rollouts trained on, with an advantage"),
        (Told::Useful, "of the rollouts sampled, learned from"),
    ]
    .into_iter()
    .filter_map(|(told, above)| {
        let lines: Vec<Line> = report
            .trends
            .iter()
            .filter(|t| t.told == told && panel::heights(&t.points).next().is_some())
            .map(|t| Line {
                name: String::new(),
                ink: colour::of(report.baseline, t.arm),
                points: t.points.clone(),
            })
            .collect();
        let farthest = lines.iter().map(|l| panel::farthest(&l.points)).fold(0.0, f64::max);
        let height = if size == Size::Wide { 230.0 } else { 180.0 };
        let plot = Plot {
            x: Span::costs(farthest),
            y: Span::all_shares(),
            above,
            below: report.axis.words(),
            height,
        };
        (!lines.is_empty()).then_some((plot, lines))
    })
    .collect();
    if plots.is_empty() {
        return None;
    }
    let told = format!(
        "Lines: effective share of the batch, and useful share of what was sampled, by {}, for {}.",
        report.axis.words(),
        super::arms(report)
    );
    row(size, &plots, &legend::arms(report), &told)
}
