//! Differences to the baseline as a forest plot.

use super::Size;
use super::forest::{self, Row};
use super::panel::Span;
use crate::colour;
use crate::number;
use crate::report::{Difference, Report};

/// Draws the figure; `None` if there is nothing to compare.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let all: Vec<&Difference> =
        report.differences.iter().filter(|d| d.arm != report.baseline && d.mean.value.is_finite()).collect();
    let baseline = report.arms.get(report.baseline)?;
    let row = |difference: &&Difference| Row {
        name: report.arms.get(difference.arm).map_or("?", |a| a.name.as_str()),
        ink: colour::of(report.baseline, difference.arm),
        estimate: difference.mean,
        words: words(difference),
    };
    let rows: Vec<Row<'_>> = all.iter().map(row).collect();
    let span = Span::differences(
        all.iter().flat_map(|d| [Some(d.mean.value), d.mean.low, d.mean.high].into_iter().flatten()),
    );
    let words = forest::Words {
        zero: &format!("as good as {}", baseline.name),
        axis: "percentage points of accuracy",
        told: &format!("Differences of the last accuracy to {}, in percentage points", baseline.name),
    };
    forest::draw(&rows, &words, span, size)
}

/// Formats a difference with its interval and p-value.
fn words(difference: &Difference) -> String {
    let mut words = number::points(difference.mean.value);
    if let Some(interval) = number::interval(&difference.mean, number::points) {
        words = format!("{words} {interval}");
    }
    if let Some(p) = difference.holm {
        let p = number::p_value(p);
        let equals = if p.starts_with('<') { " " } else { " = " };
        words = format!("{words}, p{equals}{p}");
    }
    words
}
