//! Costs of arms to the target on two axes at a time, and the Pareto front.

use super::legend::{self, Entry, Mark};
use super::panel::{Frame, Panel, Span};
use super::sheet::{Sheet, Stroke};
use super::{Size, shared};
use crate::axis::Axis;
use crate::colour;
use crate::frontier::{Frontier, Row};
use crate::number;
use crate::report::Report;

/// Draws the figure; `None` if fewer than two arms reached the target in all runs.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let frontier = Frontier::of(report)?;
    let known: Vec<&Row> = frontier.rows.iter().filter(|row| row.paid.iter().all(Option::is_some)).collect();
    if known.len() < 2 {
        return None;
    }
    let place = |axis: Axis| frontier.axes.iter().position(|a| *a == axis);
    let pairs = [(Axis::Rollouts, Axis::Flops), (Axis::Rollouts, Axis::Tokens), (Axis::Tokens, Axis::Flops)];
    let pairs: Vec<(usize, usize)> =
        pairs.into_iter().filter_map(|(x, y)| Some((place(x)?, place(y)?))).take(2).collect();
    let entries: Vec<Entry> = known
        .iter()
        .map(|row| Entry {
            name: report.arms[row.arm].name.clone(),
            mark: Mark::Dot(colour::of(report.baseline, row.arm)),
        })
        .collect();
    let across = if size == Size::Wide { pairs.len() } else { 1 };
    let down = pairs.len().div_ceil(across);
    let head = legend::rows(None, (0.0, 0.0), size.width() - 16.0, &entries) + 34.0;
    let (height, below) = (if size == Size::Wide { 250.0 } else { 200.0 }, 80.0);
    let each = size.width() / across as f64;
    let sheet = shared(Sheet::new(size.width(), head + down as f64 * (height + below) - 34.0));
    for (i, (x, y)) in pairs.into_iter().enumerate() {
        let frame = Frame {
            left: 58.0 + each * (i % across) as f64,
            top: head + (height + below) * (i / across) as f64,
            width: each - 58.0 - 22.0,
            height,
        };
        plot(report, (&frontier, &known), (x, y), frame, &sheet)?;
    }
    let mut sheet = sheet.borrow_mut();
    legend::rows(Some(&mut sheet), (8.0, 0.0), size.width() - 16.0, &entries);
    Some(sheet.finish(&format!(
        "Dots: costs to {} on two axes at a time, for {}. The numbers are in the tables.",
        number::percent_tick(frontier.accuracy),
        super::arms(report)
    )))
}

/// Draws the plot of one pair of axes.
fn plot(
    report: &Report,
    (frontier, known): (&Frontier, &[&Row]),
    (x, y): (usize, usize),
    frame: Frame,
    sheet: &super::sheet::Shared,
) -> Option<()> {
    let farthest = |axis: usize| {
        let ends = known.iter().filter_map(|row| row.paid[axis]).flat_map(|e| [Some(e.value), e.high]);
        let values = known.iter().filter_map(|row| row.paid[axis]).map(|e| e.value).fold(0.0, f64::max);
        // With two seeds, an interval may be far longer than all others.
        1.05 * ends.flatten().filter(|end| end.is_finite()).fold(0.0, f64::max).min(2.0 * values)
    };
    let (right, top) = (farthest(x), farthest(y));
    let panel = Panel::new(sheet, frame, Span::costs(right), Span::costs(top))?;
    panel.foot();
    panel.above(frontier.axes[y].words());
    panel.below(frontier.axes[x].words());
    let value = |row: &Row, axis: usize| row.paid[axis].map_or(f64::NAN, |e| e.value);
    let beaten = |row: &&&Row| {
        known.iter().any(|other| {
            let (a, b) = ((value(other, x), value(other, y)), (value(row, x), value(row, y)));
            a.0 <= b.0 && a.1 <= b.1 && a != b
        })
    };
    let mut front: Vec<(f64, f64)> =
        known.iter().filter(|row| !beaten(row)).map(|row| (value(row, x), value(row, y))).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    // Points above or right of this staircase are dominated.
    let mut stairs = Vec::new();
    for (i, point) in front.iter().enumerate() {
        let before = if i == 0 { top } else { front[i - 1].1 };
        stairs.extend([panel.at(point.0, before), panel.at(point.0, point.1)]);
    }
    stairs.extend(front.last().map(|last| panel.at(right, last.1)));
    let mut sheet = sheet.borrow_mut();
    sheet.line(&stairs, Stroke { colour: colour::FAINT, width: 1.0, dash: Some("5 4") });
    for row in known {
        let ink = colour::of(report.baseline, row.arm);
        let (a, b) = (row.paid[x]?, row.paid[y]?);
        let thin = Stroke { colour: ink.colour, width: 1.5, dash: None };
        if let (Some(low), Some(high)) = (a.low, a.high) {
            sheet.line(&[panel.at(low, b.value), panel.at(high.min(right), b.value)], thin);
        }
        if let (Some(low), Some(high)) = (b.low, b.high) {
            sheet.line(&[panel.at(a.value, low), panel.at(a.value, high.min(top))], thin);
        }
        sheet.mark(panel.at(a.value, b.value), 5.0, ink);
    }
    Some(())
}
