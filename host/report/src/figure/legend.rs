//! Names of lines: in a column right of the plot, at the lines' ends, or in rows below or above it. Names
//! never cover the data.

use super::sheet::{Anchor, SIZE, Sheet, Stroke, width};
use crate::colour::{self, Ink};
use crate::report::{Arm, Report};

/// A name with the mark of its line.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Its mark.
    pub mark: Mark,
}

/// Mark before a name.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A short line.
    Line(Ink),
    /// A short thin dashed line.
    Thin,
    /// A box.
    Box(&'static str),
    /// A dot.
    Dot(Ink),
}

/// Returns the arms of a report, each with its line.
pub fn arms(report: &Report) -> Vec<Entry> {
    let entry = |(arm, a): (usize, &Arm)| Entry {
        name: a.name.clone(),
        mark: Mark::Line(colour::of(report.baseline, arm)),
    };
    report.arms.iter().enumerate().map(entry).collect()
}

/// Distance of lines of text.
const LINE: f64 = 17.0;
/// Width of a mark and the space after it.
const MARK: f64 = 28.0;

/// Draws a column of names right of a plot, each close to its line's end and joined to it by a thin line.
pub fn column(
    sheet: &mut Sheet,
    (top, bottom): (f64, f64),
    left: f64,
    ends: &[((f64, f64), Entry)],
    widest: f64,
) {
    let mut places: Vec<usize> = (0..ends.len()).collect();
    places.sort_by(|a, b| ends[*a].0.1.total_cmp(&ends[*b].0.1));
    let gap = LINE.min((bottom - top) / ends.len().max(1) as f64);
    let mut heights: Vec<f64> = Vec::new();
    for place in &places {
        let wanted = ends[*place].0.1.clamp(top, bottom);
        heights.push(heights.last().map_or(wanted, |above| wanted.max(above + gap)));
    }
    let mut lowest = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(lowest);
        lowest = *height - gap;
    }
    for (place, y) in places.into_iter().zip(heights) {
        let ((x, end), entry) = &ends[place];
        if let Mark::Line(ink) = entry.mark {
            let thin = Stroke { colour: ink.colour, width: 1.0, dash: Some("1.5 3") };
            sheet.line(&[(*x + 3.0, *end), (left + 2.0, *end), (left + 12.0, y)], thin);
        }
        mark(sheet, (left + 13.0, y), entry.mark);
        sheet.name((left + 13.0 + MARK, y), Anchor::Start, &entry.name, widest - 13.0 - MARK);
    }
}

/// Returns the width of a column of these names, at most `most`.
pub fn column_width(names: &[Entry], most: f64) -> f64 {
    let widest = names.iter().map(|e| width(&e.name)).fold(0.0, f64::max);
    (13.0 + MARK + widest + 4.0).min(most)
}

/// Returns the width of a column of names left of a plot, at most `most`.
pub fn left_of<'a>(names: impl Iterator<Item = &'a str>, extra: f64, most: f64) -> f64 {
    (names.map(width).fold(40.0, f64::max) + extra).min(most)
}

/// Lays out rows of names and returns their height. Draws them if there is a sheet.
pub fn rows(sheet: Option<&mut Sheet>, (left, top): (f64, f64), room: f64, entries: &[Entry]) -> f64 {
    let mut places = Vec::new();
    let (mut x, mut y) = (0.0, 0.0);
    for entry in entries {
        let wide = (MARK + width(&entry.name) + 14.0).min(room);
        if x > 0.0 && x + wide > room + 14.0 {
            (x, y) = (0.0, y + LINE + 1.0);
        }
        places.push((x, y));
        x += wide;
    }
    if let Some(sheet) = sheet {
        for (entry, (x, y)) in entries.iter().zip(places) {
            let (x, y) = (left + x, top + y + LINE / 2.0);
            mark(sheet, (x, y), entry.mark);
            sheet.name((x + MARK, y), Anchor::Start, &entry.name, room - MARK);
        }
    }
    if entries.is_empty() { 0.0 } else { y + LINE + 1.0 }
}

/// Draws a mark with its left middle at a point.
fn mark(sheet: &mut Sheet, (x, y): (f64, f64), mark: Mark) {
    let across = [(x, y), (x + MARK - 6.0, y)];
    match mark {
        Mark::Line(ink) => {
            sheet.line(&across, Stroke { colour: ink.colour, width: 2.5, dash: ink.dash });
        }
        Mark::Thin => sheet.line(&across, Stroke { colour: colour::FAINT, width: 1.0, dash: Some("5 4") }),
        Mark::Box(fill) => sheet.bar((x + MARK - 6.0 - SIZE, y - SIZE / 2.0), (SIZE, SIZE), fill),
        Mark::Dot(ink) => sheet.mark((x + MARK - 12.0, y), 4.5, ink),
    }
}
