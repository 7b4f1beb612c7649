//! A forest plot: a square and an interval for each row, around a line that stands for no difference.

use super::legend;
use super::panel::{Frame, Panel, Span};
use super::sheet::{Anchor, Sheet, Stroke};
use super::{Size, shared};
use crate::colour::{self, Ink};
use crate::report::Estimate;

/// A row.
pub struct Row<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its colour.
    pub ink: Ink,
    /// Where its square and interval are.
    pub estimate: Estimate,
    /// The numbers, as text.
    pub words: String,
}

/// Words around the plot.
pub struct Words<'a> {
    /// What the line at zero means.
    pub zero: &'a str,
    /// The label of the axis.
    pub axis: &'a str,
    /// What is shown, for screen readers, without the numbers.
    pub told: &'a str,
}

/// Draws the rows from the top; `None` if there is none.
pub fn draw(rows: &[Row<'_>], words: &Words<'_>, span: Span, size: Size) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    // Names and numbers are above each row on a narrow sheet, and beside it on a wide one.
    let (left, right, each) = match size {
        Size::Wide => (legend::left_of(rows.iter().map(|row| row.name), 24.0, 230.0), 230.0, 34.0),
        Size::Narrow => (14.0, 14.0, 56.0),
    };
    let frame =
        Frame { left, top: 30.0, width: size.width() - left - right, height: each * rows.len() as f64 };
    let sheet = shared(Sheet::new(size.width(), frame.top + frame.height + 46.0));
    let panel = Panel::new(&sheet, frame, span, Span::rows(rows.len()))?;
    panel.foot();
    panel.up(0.0);
    panel.below(words.axis);
    let (zero, _) = panel.at(0.0, 0.0);
    let mut sheet = sheet.borrow_mut();
    let base = super::sheet::clip(words.zero, size.width() * 0.6);
    let half = super::sheet::width(&base) / 2.0;
    let at = zero.clamp(half + 4.0, (size.width() - half - 4.0).max(half + 4.0));
    sheet.text_in((at, 14.0), Anchor::Middle, &base, colour::FAINT);
    for (place, row) in rows.iter().enumerate() {
        let shift = if size == Size::Narrow { 14.0 } else { 0.0 };
        let (x, y) = panel.at(row.estimate.value, place as f64);
        let y = y + shift;
        if let (Some(low), Some(high)) = (row.estimate.low, row.estimate.high) {
            let ends = [(panel.at(low, 0.0).0, y), (panel.at(high, 0.0).0, y)];
            let thick = Stroke { colour: row.ink.colour, width: 2.0, dash: None };
            sheet.line(&ends, thick);
            for (end, _) in ends {
                sheet.line(&[(end, y - 5.0), (end, y + 5.0)], thick);
            }
        }
        sheet.bar((x - 5.0, y - 5.0), (10.0, 10.0), row.ink.colour);
        match size {
            Size::Wide => {
                sheet.name((left - 12.0, y), Anchor::End, row.name, left - 16.0);
                sheet.text((size.width() - right + 14.0, y), Anchor::Start, &row.words);
            }
            Size::Narrow => {
                // Hides the grid behind the text.
                sheet.bar((left - 1.0, y - 34.0), (frame.width + 2.0, 18.0), "#ffffff");
                let room = frame.width - super::sheet::width(&row.words) - 12.0;
                sheet.name((left, y - 25.0), Anchor::Start, row.name, room);
                sheet.text((left + frame.width, y - 25.0), Anchor::End, &row.words);
            }
        }
    }
    let numbers: Vec<String> = rows.iter().map(|row| format!("{} {}", row.name, row.words)).collect();
    Some(sheet.finish(&format!("{}: {}.", words.told, numbers.join("; "))))
}
