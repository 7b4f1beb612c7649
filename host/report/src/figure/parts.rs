//! Held-out accuracy by part: a dot for each arm, with its interval.

use super::legend::{self, Entry, Mark};
use super::panel::{Frame, Panel, Span};
use super::sheet::{Anchor, Sheet, Stroke};
use super::{Size, shared};
use crate::colour;
use crate::report::{Part, Report};

/// Draws the figure; `None` if there are no parts.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let known: Vec<&Part> = report.parts.iter().filter(|p| p.last.value.is_finite()).collect();
    let mut parts: Vec<&str> = Vec::new();
    for part in &known {
        if !parts.contains(&part.part.as_str()) {
            parts.push(&part.part);
        }
    }
    if parts.is_empty() {
        return None;
    }
    let entries: Vec<Entry> = (0..report.arms.len())
        .filter(|arm| known.iter().any(|p| p.arm == *arm))
        .map(|arm| Entry {
            name: report.arms[arm].name.clone(),
            mark: Mark::Dot(colour::of(report.baseline, arm)),
        })
        .collect();
    let above = legend::rows(None, (0.0, 0.0), size.width() - 16.0, &entries) + 10.0;
    let lane = 9.0;
    let title = if size == Size::Wide { 0.0 } else { 22.0 };
    let left = match size {
        Size::Wide => legend::left_of(parts.iter().copied(), 24.0, 220.0),
        Size::Narrow => 16.0,
    };
    let each = title + (lane * entries.len() as f64 + 12.0).max(26.0);
    let frame =
        Frame { left, top: above, width: size.width() - left - 26.0, height: each * parts.len() as f64 };
    let span =
        Span::shares(known.iter().flat_map(|p| [Some(p.last.value), p.last.low, p.last.high]).flatten());
    let sheet = shared(Sheet::new(size.width(), frame.top + frame.height + 46.0));
    let panel = Panel::new(&sheet, frame, span, Span::rows(parts.len()))?;
    panel.foot();
    panel.below("last accuracy");
    let mut sheet = sheet.borrow_mut();
    legend::rows(Some(&mut sheet), (8.0, 0.0), size.width() - 16.0, &entries);
    for (row, part) in parts.iter().enumerate() {
        let top = frame.top + each * row as f64;
        let line = Stroke { colour: colour::GRID, width: 1.0, dash: None };
        sheet.line(&[(left, top), (left + frame.width, top)], line);
        match size {
            Size::Wide => sheet.name((left - 12.0, top + each / 2.0), Anchor::End, part, left - 16.0),
            Size::Narrow => {
                sheet.bar((left - 1.0, top + 2.0), (frame.width + 2.0, 19.0), "#ffffff");
                sheet.name((left, top + 12.0), Anchor::Start, part, frame.width);
            }
        }
        let here: Vec<&&Part> = known.iter().filter(|p| p.part == *part).collect();
        let first = top + title + (each - title - lane * (here.len() as f64 - 1.0)) / 2.0;
        for (i, known) in here.iter().enumerate() {
            let y = first + lane * i as f64;
            let ink = colour::of(report.baseline, known.arm);
            if let (Some(low), Some(high)) = (known.last.low, known.last.high) {
                let ends = [(panel.at(low, 0.0).0, y), (panel.at(high, 0.0).0, y)];
                sheet.line(&ends, Stroke { colour: ink.colour, width: 1.5, dash: None });
            }
            sheet.mark((panel.at(known.last.value, 0.0).0, y), 4.5, ink);
        }
    }
    Some(sheet.finish(&format!(
        "Dots: last held-out accuracy on each part, for {}. The numbers are in the tables.",
        super::arms(report)
    )))
}
