//! A small plot for each arm, all with the same axes: ages of rollouts trained on, and filtered rewards.

use super::accuracy::{Line, curves};
use super::legend::{self, Entry, Mark};
use super::panel::{self, Frame, Panel, Span};
use super::sheet::{Anchor, Shared, Sheet};
use super::{Size, shared};
use crate::colour::{self, Ink};
use crate::number;
use crate::report::{Report, Told};

/// Ages from this one on share a bar.
const OLDEST: usize = 8;

/// Positions of the arms' plots on a sheet.
struct Grid {
    sheet: Shared,
    frames: Vec<Frame>,
}

impl Grid {
    fn new(size: Size, count: usize, tall: f64, entries: &[Entry]) -> Self {
        let across = match size {
            Size::Wide => count.clamp(1, if count == 4 { 4 } else { 3 }),
            Size::Narrow => count.clamp(1, 2),
        };
        let wide = size.width() / across as f64;
        let legend = legend::rows(None, (0.0, 0.0), size.width() - 16.0, entries);
        let each = 34.0 + tall + 52.0;
        let frames = (0..count).map(|i| Frame {
            left: (i % across) as f64 * wide + 50.0,
            top: (i / across) as f64 * each + 34.0 + legend,
            width: wide - 50.0 - 16.0,
            height: tall,
        });
        let height = legend + each * count.div_ceil(across) as f64;
        let sheet = shared(Sheet::new(size.width(), height));
        legend::rows(Some(&mut sheet.borrow_mut()), (8.0, 0.0), size.width() - 16.0, entries);
        Self { sheet, frames: frames.collect() }
    }

    /// Draws an arm's name above its plot, shortened to its width.
    fn title(&self, frame: Frame, name: &str, ink: Ink) {
        let mut sheet = self.sheet.borrow_mut();
        let y = frame.top - 16.0;
        sheet.bar((frame.left, y - 5.0), (10.0, 10.0), ink.colour);
        sheet.name((frame.left + 16.0, y), Anchor::Start, name, frame.width - 10.0);
    }
}

/// Draws the ages of rollouts trained on, in model updates; `None` if there are none.
pub fn ages(report: &Report, size: Size) -> Option<String> {
    let bars: Vec<(usize, Vec<f64>)> = report
        .uses
        .iter()
        .filter(|u| u.ages.iter().sum::<u64>() > 0)
        .map(|u| {
            let total: u64 = u.ages.iter().sum();
            let cut = u.ages.len().min(OLDEST);
            let mut shares: Vec<f64> = u.ages[..cut].iter().map(|n| number::share(*n, total)).collect();
            if cut < u.ages.len() {
                shares.push(number::share(u.ages[cut..].iter().sum(), total));
            }
            (u.arm, shares)
        })
        .collect();
    let oldest = bars.iter().map(|(_, shares)| shares.len()).max()?;
    let tall = if size == Size::Wide { 110.0 } else { 90.0 };
    let grid = Grid::new(size, bars.len(), tall, &[]);
    for ((arm, shares), frame) in bars.iter().zip(&grid.frames) {
        let ink = colour::of(report.baseline, *arm);
        let span = Span { scale: panel::Scale::Rows, ..Span::rows(oldest.max(3)) };
        let along = Span { low: span.high, high: span.low, ..span };
        let panel = Panel::new(&grid.sheet, *frame, along, Span::all_shares())?;
        panel.foot();
        grid.title(*frame, report.arms.get(*arm).map_or("?", |a| a.name.as_str()), ink);
        panel.below("age in model updates");
        let mut sheet = grid.sheet.borrow_mut();
        for age in 0..oldest.max(3) {
            let (left, foot) = panel.at(age as f64 - 0.36, 0.0);
            let (right, top) = panel.at(age as f64 + 0.36, shares.get(age).copied().unwrap_or(0.0));
            sheet.bar((left, top), (right - left, foot - top), ink.colour);
            let label = if age == OLDEST { format!("{age}+") } else { age.to_string() };
            let middle = f64::midpoint(left, right);
            sheet.text_in((middle, foot + 13.0), Anchor::Middle, &label, colour::FAINT);
        }
    }
    let told = format!(
        "Bars: ages of the rollouts trained on, in model updates, for {}, in shares.",
        super::arms(report)
    );
    let svg = grid.sheet.borrow().finish(&told);
    Some(svg)
}

/// Draws the mean reward of rollouts sampled (solid) and trained on (dashed); `None` if not known.
pub fn rewards(report: &Report, size: Size) -> Option<String> {
    let of = |arm: usize, told: Told| {
        report.trends.iter().find(|t| t.arm == arm && t.told == told).map(|t| t.points.clone())
    };
    let mut plots: Vec<(usize, Vec<Line>)> = Vec::new();
    for arm in 0..report.arms.len() {
        let ink = colour::of(report.baseline, arm);
        let lines: Vec<Line> = [(Told::Reward, None), (Told::TrainedReward, Some("5 3"))]
            .into_iter()
            .filter_map(|(told, dash)| {
                let points = of(arm, told)?;
                Some(Line { name: String::new(), ink: Ink { dash, ..ink }, points })
            })
            .collect();
        if lines.iter().any(|l| panel::heights(&l.points).next().is_some()) {
            plots.push((arm, lines));
        }
    }
    if plots.is_empty() {
        return None;
    }
    let lines = || plots.iter().flat_map(|(_, lines)| lines);
    let y =
        Span { scale: panel::Scale::Cost, ..Span::shares(lines().flat_map(|l| panel::heights(&l.points))) };
    let x = Span::costs(lines().map(|l| panel::farthest(&l.points)).fold(0.0, f64::max));
    let plain = Ink { colour: colour::TEXT, dash: None };
    let entries = [
        Entry { name: "all sampled".to_owned(), mark: Mark::Line(plain) },
        Entry { name: "trained on".to_owned(), mark: Mark::Line(Ink { dash: Some("5 3"), ..plain }) },
    ];
    let tall = if size == Size::Wide { 130.0 } else { 100.0 };
    let grid = Grid::new(size, plots.len(), tall, &entries);
    for ((arm, lines), frame) in plots.iter().zip(&grid.frames) {
        let panel = Panel::new(&grid.sheet, *frame, x, y)?;
        panel.foot();
        panel.below(report.axis.words());
        grid.title(
            *frame,
            report.arms.get(*arm).map_or("?", |a| a.name.as_str()),
            colour::of(report.baseline, *arm),
        );
        curves(&panel, lines);
    }
    let told = format!(
        "Lines: mean reward of all rollouts sampled, solid, and of those trained on, dashed, for {}.",
        super::arms(report)
    );
    let svg = grid.sheet.borrow().finish(&told);
    Some(svg)
}
