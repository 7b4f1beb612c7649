//! Accuracy against an axis, with bands, and other plots of named curves.

use super::legend::{self, Entry, Mark};
use super::panel::{self, Frame, Panel, Span};
use super::sheet::{Shared, Sheet};
use super::{Size, shared};
use crate::axis::Axis;
use crate::colour::{self, Ink};
use crate::number;
use crate::report::{Estimate, Report};

/// Draws the figure; `None` if no arm has a score on this axis.
pub fn draw(report: &Report, axis: Axis, size: Size) -> Option<String> {
    let curves: Vec<_> = report
        .curves
        .iter()
        .filter(|c| c.axis == axis && c.points.iter().any(|(x, e)| x.is_finite() && e.value.is_finite()))
        .map(|c| (c.arm, c.points.as_slice()))
        .collect();
    if curves.is_empty() {
        return None;
    }
    let mut targets: Vec<f64> = report.targets.iter().map(|t| t.accuracy).filter(|a| a.is_finite()).collect();
    targets.sort_by(f64::total_cmp);
    targets.dedup();
    let heights = curves.iter().flat_map(|(_, points)| panel::heights(points)).chain(targets.iter().copied());
    let plot = Plot {
        x: Span::costs(curves.iter().map(|(_, points)| panel::farthest(points)).fold(0.0, f64::max)),
        y: Span::shares(heights),
        above: "held-out accuracy",
        below: axis.words(),
        height: match size {
            Size::Wide => 360.0,
            Size::Narrow => 250.0,
        },
    };
    let told = format!(
        "Lines: accuracy against {} for {}. The numbers are in the tables.",
        axis.words(),
        super::arms(report)
    );
    let curves = curves.into_iter().map(|(arm, points)| Line {
        name: report.arms.get(arm).map_or("?", |a| a.name.as_str()).to_owned(),
        ink: colour::of(report.baseline, arm),
        points: points.to_vec(),
    });
    plot.draw(size, &curves.collect::<Vec<_>>(), &targets, &told)
}

/// A curve with a name.
pub struct Line {
    /// The name.
    pub name: String,
    /// Its line style.
    pub ink: Ink,
    /// Its points.
    pub points: Vec<(f64, Estimate)>,
}

/// A plot of curves, with their names beside or below it.
pub struct Plot<'a> {
    /// The x axis.
    pub x: Span,
    /// The y axis.
    pub y: Span,
    /// Label of the y axis, above the plot.
    pub above: &'a str,
    /// Label of the x axis.
    pub below: &'a str,
    /// The plot's height.
    pub height: f64,
}

/// From this many lines on, names are below the plot.
const CROWD: usize = 20;

impl Plot<'_> {
    fn draw(&self, size: Size, lines: &[Line], targets: &[f64], told: &str) -> Option<String> {
        let mut entries: Vec<Entry> =
            lines.iter().map(|l| Entry { name: l.name.clone(), mark: Mark::Line(l.ink) }).collect();
        let beside = size == Size::Wide && lines.len() < CROWD;
        if beside {
            let named = targets.iter().map(|t| format!("target {}", number::percent_tick(*t)));
            entries.extend(named.map(|name| Entry { name, mark: Mark::Thin }));
        } else if !targets.is_empty() {
            let all: Vec<_> = targets.iter().map(|t| number::percent_tick(*t)).collect();
            entries.push(Entry { name: format!("target {}", all.join(", ")), mark: Mark::Thin });
        }
        let column = if beside { legend::column_width(&entries, 250.0) } else { 16.0 };
        let wide = size.width() - 54.0 - column;
        let frame = Frame { left: 54.0, top: 34.0, width: wide, height: self.height };
        let foot = frame.top + self.height + 46.0;
        let below =
            if beside { 0.0 } else { legend::rows(None, (0.0, 0.0), size.width() - 16.0, &entries) + 8.0 };
        let sheet = shared(Sheet::new(size.width(), foot + below));
        let panel = Panel::new(&sheet, frame, self.x, self.y)?;
        panel.foot();
        panel.above(self.above);
        panel.below(self.below);
        for target in targets {
            panel.across(*target);
        }
        let ends = curves(&panel, lines);
        if beside {
            let mut named: Vec<((f64, f64), Entry)> = ends.into_iter().zip(entries.iter().cloned()).collect();
            let right = frame.left + frame.width;
            for (target, entry) in targets.iter().zip(entries.iter().skip(lines.len())) {
                named.push(((right, panel.at(0.0, *target).1), entry.clone()));
            }
            let within = (frame.top - 4.0, frame.top + frame.height);
            legend::column(&mut sheet.borrow_mut(), within, right, &named, column);
        } else {
            legend::rows(Some(&mut sheet.borrow_mut()), (8.0, foot + 4.0), size.width() - 16.0, &entries);
        }
        let svg = sheet.borrow().finish(told);
        Some(svg)
    }
}

/// Draws bands, then the curves above them, and returns the curves' ends. Curves that coincide share their
/// line in alternating dashes, so that each of them is visible.
pub fn curves(panel: &Panel, lines: &[Line]) -> Vec<(f64, f64)> {
    let opacity = if lines.len() > 6 { 0.08 } else { 0.15 };
    for line in lines {
        panel.band(&line.points, line.ink, opacity);
    }
    let corner = (panel.frame().left, panel.frame().top);
    let dashes = turns(&lines.iter().map(|line| panel.course(&line.points)).collect::<Vec<_>>());
    let curve = |(line, dash): (&Line, &Option<String>)| {
        panel.curve(&line.points, line.ink, dash.as_deref().or(line.ink.dash)).unwrap_or(corner)
    };
    lines.iter().zip(&dashes).map(curve).collect()
}

/// Distance below which two curves cannot be distinguished, in pixels.
const NEAR: f64 = 1.5;
/// Length of each alternating dash, in pixels.
const TURN: usize = 9;

/// Returns the dashes of curves that coincide with others for most of their length.
fn turns(courses: &[Vec<(f64, f64)>]) -> Vec<Option<String>> {
    // Each curve belongs to the first one with which it coincides.
    let mut firsts: Vec<usize> = Vec::new();
    for (i, course) in courses.iter().enumerate() {
        let first = (0..i).find(|j| firsts[*j] == *j && lies_on(course, &courses[*j]));
        firsts.push(first.unwrap_or(i));
    }
    let turn = |(i, first): (usize, &usize)| {
        let all = firsts.iter().filter(|other| *other == first).count();
        let mine = firsts[..i].iter().filter(|other| *other == first).count();
        // The first one is drawn solid, below the others.
        (mine > 0).then(|| format!("0 {} {TURN} {}", mine * TURN, (all - 1 - mine) * TURN))
    };
    firsts.iter().enumerate().map(turn).collect()
}

/// Whether a curve is nearly hidden by another one, for at least half of its width.
fn lies_on(one: &[(f64, f64)], other: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (one.first(), one.last()) else { return false };
    let steps = 100;
    let near = (0..=steps).filter(|i| {
        let x = first.0 + (last.0 - first.0) * f64::from(*i) / f64::from(steps);
        // If a step has two heights at one place, the last one counts.
        let at = |course: &[(f64, f64)]| {
            let mut beside = course.windows(2).filter(|two| two[0].0 <= x && x <= two[1].0);
            beside.next_back().map(|two| {
                let part = if two[1].0 > two[0].0 { (x - two[0].0) / (two[1].0 - two[0].0) } else { 0.0 };
                two[0].1 + (two[1].1 - two[0].1) * part
            })
        };
        at(one).zip(at(other)).is_some_and(|(a, b)| (a - b).abs() < NEAR)
    });
    2 * near.count() > steps as usize
}

/// Draws several plots of the same curves in a row or column, with one legend below.
pub fn row(size: Size, plots: &[(Plot, Vec<Line>)], entries: &[Entry], told: &str) -> Option<String> {
    let across = if size == Size::Wide { plots.len().min(2) } else { 1 };
    let down = plots.len().div_ceil(across.max(1));
    let tall = plots.iter().map(|(plot, _)| plot.height).fold(0.0, f64::max);
    let cell = (size.width() / across.max(1) as f64, 34.0 + tall + 54.0);
    let below = legend::rows(None, (0.0, 0.0), size.width() - 16.0, entries);
    let sheet: Shared = shared(Sheet::new(size.width(), cell.1 * down as f64 + below + 6.0));
    for (i, (plot, lines)) in plots.iter().enumerate() {
        let (column, row) = ((i % across) as f64, (i / across) as f64);
        let frame = Frame {
            left: column * cell.0 + 54.0,
            top: row * cell.1 + 34.0,
            width: cell.0 - 54.0 - 18.0,
            height: plot.height,
        };
        let panel = Panel::new(&sheet, frame, plot.x, plot.y)?;
        panel.foot();
        panel.above(plot.above);
        panel.below(plot.below);
        curves(&panel, lines);
    }
    let top = cell.1 * down as f64;
    legend::rows(Some(&mut sheet.borrow_mut()), (8.0, top), size.width() - 16.0, entries);
    let svg = sheet.borrow().finish(told);
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_on_one_line_take_turns() {
        let line = |up: f64| (0..10).map(|i| (f64::from(i) * 50.0, up + f64::from(i))).collect::<Vec<_>>();
        let dashes = turns(&[line(0.0), line(20.0), line(0.5), line(0.0)]);
        assert_eq!(dashes, [None, None, Some("0 9 9 9".to_owned()), Some("0 18 9 0".to_owned())]);
        assert_eq!(turns(&[line(0.0), vec![(0.0, 0.0)], Vec::new()]), [None, None, None]);
    }

    #[test]
    fn a_curve_that_leaves_the_other_early_is_its_own() {
        let other: Vec<_> = (0..=10).map(|i| (f64::from(i), 0.0)).collect();
        let leaves = |after: i32| {
            (0..=10).map(|i| (f64::from(i), f64::from((i - after).max(0)) * 30.0)).collect::<Vec<_>>()
        };
        assert!(lies_on(&leaves(7), &other) && !lies_on(&leaves(3), &other));
    }
}
