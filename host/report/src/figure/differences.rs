//! Differences to the baseline as a forest plot: a square and interval for each arm, and a line at zero.

use super::legend;
use super::panel::{Frame, Panel, Span};
use super::sheet::{Anchor, Sheet, Stroke};
use super::{Size, shared};
use crate::colour;
use crate::number;
use crate::report::{Difference, Report};

/// Draws the figure; `None` if there is nothing to compare.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let rows: Vec<&Difference> =
        report.differences.iter().filter(|d| d.arm != report.baseline && d.mean.value.is_finite()).collect();
    let baseline = report.arms.get(report.baseline)?;
    if rows.is_empty() {
        return None;
    }
    let names = rows.iter().filter_map(|d| report.arms.get(d.arm)).map(|a| a.name.as_str());
    // Names and numbers are above each row on a narrow sheet, and beside it on a wide one.
    let (left, right, each) = match size {
        Size::Wide => (legend::left_of(names, 24.0, 230.0), 230.0, 34.0),
        Size::Narrow => (14.0, 14.0, 56.0),
    };
    let frame =
        Frame { left, top: 30.0, width: size.width() - left - right, height: each * rows.len() as f64 };
    let span = Span::differences(
        rows.iter().flat_map(|d| [Some(d.mean.value), d.mean.low, d.mean.high].into_iter().flatten()),
    );
    let sheet = shared(Sheet::new(size.width(), frame.top + frame.height + 46.0));
    let panel = Panel::new(&sheet, frame, span, Span::rows(rows.len()))?;
    panel.foot();
    panel.up(0.0);
    panel.below("percentage points of accuracy");
    let (zero, _) = panel.at(0.0, 0.0);
    let mut sheet = sheet.borrow_mut();
    let base = sheet_base(&baseline.name, size);
    let half = super::sheet::width(&base) / 2.0;
    let at = zero.clamp(half + 4.0, (size.width() - half - 4.0).max(half + 4.0));
    sheet.text_in((at, 14.0), Anchor::Middle, &base, colour::FAINT);
    for (row, difference) in rows.iter().enumerate() {
        let ink = colour::of(report.baseline, difference.arm);
        let name = report.arms.get(difference.arm).map_or("?", |a| a.name.as_str());
        let shift = if size == Size::Narrow { 14.0 } else { 0.0 };
        let (x, y) = panel.at(difference.mean.value, row as f64);
        let y = y + shift;
        if let (Some(low), Some(high)) = (difference.mean.low, difference.mean.high) {
            let ends = [(panel.at(low, 0.0).0, y), (panel.at(high, 0.0).0, y)];
            let thick = Stroke { colour: ink.colour, width: 2.0, dash: None };
            sheet.line(&ends, thick);
            for (end, _) in ends {
                sheet.line(&[(end, y - 5.0), (end, y + 5.0)], thick);
            }
        }
        sheet.bar((x - 5.0, y - 5.0), (10.0, 10.0), ink.colour);
        let words = words(difference);
        match size {
            Size::Wide => {
                sheet.name((left - 12.0, y), Anchor::End, name, left - 16.0);
                sheet.text((size.width() - right + 14.0, y), Anchor::Start, &words);
            }
            Size::Narrow => {
                // Hides the grid behind the text.
                sheet.bar((left - 1.0, y - 34.0), (frame.width + 2.0, 18.0), "#ffffff");
                let room = frame.width - super::sheet::width(&words) - 12.0;
                sheet.name((left, y - 25.0), Anchor::Start, name, room);
                sheet.text((left + frame.width, y - 25.0), Anchor::End, &words);
            }
        }
    }
    Some(sheet.finish(&format!(
        "Differences of the last accuracy to {}, in percentage points: {}.",
        baseline.name,
        rows.iter()
            .map(|d| format!("{} {}", report.arms.get(d.arm).map_or("?", |a| a.name.as_str()), words(d)))
            .collect::<Vec<_>>()
            .join("; ")
    )))
}

fn sheet_base(name: &str, size: Size) -> String {
    super::sheet::clip(&format!("as good as {name}"), size.width() * 0.6)
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
