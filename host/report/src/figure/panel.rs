//! A panel: a plot's frame with its grid and axis labels, and curves within it.
//!
//! plotters lays out the axes and chooses ticks. Curves are drawn on the sheet directly, to support dashes.

use plotters::coord::CoordTranslate;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, IntoDrawingArea as _, IntoFont as _, LabelAreaPosition, RGBColor, TRANSPARENT,
};

use super::sheet::{Anchor, FINE, Paper, SIZE, Shared, Stroke};
use crate::colour::{self, Ink};
use crate::number;
use crate::report::Estimate;

/// The rectangle of a plot's data on its sheet. Labels are outside of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// Unit of the numbers on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Costs, with SI prefixes.
    Cost,
    /// Shares, in percent.
    Percent,
    /// Differences of shares, in percentage points.
    Points,
    /// Logarithms of ratios, to base 2.
    Ratios,
    /// Rows that are named beside the plot, without labels and grid.
    Rows,
}

/// An axis: its range and unit.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Unit.
    pub scale: Scale,
}

/// A plot's frame, ready for data.
pub struct Panel {
    sheet: Shared,
    frame: Frame,
    axes: Cartesian2d<RangedCoordf64, RangedCoordf64>,
}

/// Space for labels left of and below a plot.
const LEFT: f64 = 52.0;
const BELOW: f64 = 24.0;

impl Panel {
    /// Draws grid and ticks; `None` if there is no space for them.
    pub fn new(sheet: &Shared, frame: Frame, x: Span, y: Span) -> Option<Self> {
        let tenths = |v: f64| (v * FINE).round() as i32;
        let root = Paper(sheet.clone()).into_drawing_area();
        let area = root.shrink(
            (tenths(frame.left - LEFT), tenths(frame.top)),
            (tenths(frame.width + LEFT), tenths(frame.height + BELOW)),
        );
        let mut chart = ChartBuilder::on(&area)
            .set_label_area_size(LabelAreaPosition::Left, tenths(LEFT))
            .set_label_area_size(LabelAreaPosition::Bottom, tenths(BELOW))
            .build_cartesian_2d(x.range(), y.range())
            .ok()?;
        let faint = ("sans-serif", SIZE * FINE).into_font().color(&rgb(colour::FAINT));
        let (in_x, in_y) = (|v: &f64| x.scale.words(*v), |v: &f64| y.scale.words(*v));
        let mut mesh = chart.configure_mesh();
        mesh.axis_style(TRANSPARENT)
            .light_line_style(TRANSPARENT)
            .bold_line_style(plotters::style::ShapeStyle::from(&rgb(colour::GRID)).stroke_width(FINE as u32))
            .label_style(faint)
            .set_all_tick_mark_size(tenths(5.0))
            .x_labels(x.ticks(frame.width, 48.0))
            .y_labels(y.ticks(frame.height, 30.0))
            .x_label_formatter(&in_x)
            .y_label_formatter(&in_y);
        if x.scale == Scale::Rows {
            mesh.disable_x_mesh().disable_x_axis();
        }
        if y.scale == Scale::Rows {
            mesh.disable_y_mesh().disable_y_axis();
        }
        mesh.draw().ok()?;
        let axes = chart.plotting_area().as_coord_spec().clone();
        Some(Self { sheet: sheet.clone(), frame, axes })
    }

    /// Returns the position of a pair of numbers on the sheet.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = self.axes.translate(&(x, y));
        (f64::from(x) / FINE, f64::from(y) / FINE)
    }

    /// The frame.
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Draws a line along the bottom of the plot.
    pub fn foot(&self) {
        let Frame { left, top, width, height } = self.frame;
        let y = top + height;
        self.rule(&[(left, y), (left + width, y)]);
    }

    /// Draws the label of the y axis, above the plot on its left.
    pub fn above(&self, words: &str) {
        let Frame { left, top, .. } = self.frame;
        self.sheet.borrow_mut().text(((left - LEFT).max(0.0) + 2.0, top - 17.0), Anchor::Start, words);
    }

    /// Draws the label of the x axis, below the plot.
    pub fn below(&self, words: &str) {
        let Frame { left, top, width, height } = self.frame;
        let at = (left + width / 2.0, top + height + BELOW + 10.0);
        self.sheet.borrow_mut().text(at, Anchor::Middle, words);
    }

    /// Draws a thin dashed line across the plot, at a height.
    pub fn across(&self, y: f64) {
        let Frame { left, width, .. } = self.frame;
        let (_, y) = self.at(0.0, y);
        let stroke = Stroke { colour: colour::FAINT, width: 1.0, dash: Some("5 4") };
        self.sheet.borrow_mut().line(&[(left, y), (left + width, y)], stroke);
    }

    /// Draws a thin vertical line.
    pub fn up(&self, x: f64) {
        let Frame { top, height, .. } = self.frame;
        let (x, _) = self.at(x, 0.0);
        self.rule(&[(x, top), (x, top + height)]);
    }

    /// Draws the band of a curve's intervals.
    pub fn band(&self, points: &[(f64, Estimate)], ink: Ink, opacity: f64) {
        let known: Vec<_> = points.iter().filter_map(|(x, e)| Some((*x, e.low?, e.high?))).collect();
        if known.len() < 2 {
            return;
        }
        let upper = known.iter().map(|(x, _, high)| self.at(*x, *high));
        let lower = known.iter().rev().map(|(x, low, _)| self.at(*x, *low));
        let outline: Vec<_> = upper.chain(lower).collect();
        self.sheet.borrow_mut().area(&outline, ink.colour, opacity);
    }

    /// Returns a curve's points on the sheet.
    pub fn course(&self, points: &[(f64, Estimate)]) -> Vec<(f64, f64)> {
        let finite = points.iter().filter(|(x, e)| x.is_finite() && e.value.is_finite());
        finite.map(|(x, e)| self.at(*x, e.value)).collect()
    }

    /// Draws a curve, or a dot if it has a single point. Returns its end on the sheet.
    pub fn curve(&self, points: &[(f64, Estimate)], ink: Ink, dash: Option<&str>) -> Option<(f64, f64)> {
        let points = self.course(points);
        let mut sheet = self.sheet.borrow_mut();
        sheet.line(&points, Stroke { colour: ink.colour, width: 2.0, dash });
        let last = *points.last()?;
        if points.len() == 1 {
            sheet.dot(last, 4.0, ink.colour);
        }
        Some(last)
    }

    fn rule(&self, points: &[(f64, f64)]) {
        self.sheet.borrow_mut().line(points, Stroke { colour: colour::RULE, width: 1.0, dash: None });
    }
}

impl Span {
    /// Returns an axis from 0 to a cost.
    pub fn costs(highest: f64) -> Self {
        Self { low: 0.0, high: if highest > 0.0 { highest } else { 1.0 }, scale: Scale::Cost }
    }

    /// Returns an axis from 0 to 100 %.
    pub fn all_shares() -> Self {
        Self { low: 0.0, high: 1.0, scale: Scale::Percent }
    }

    /// Returns an axis for these shares, with some margin, on round numbers.
    pub fn shares(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values).unwrap_or((0.0, 1.0));
        let room = ((high - low) * 0.06).max(0.005);
        let step = if high - low > 0.25 { 0.05 } else { 0.01 };
        let down = |v: f64| (v / step).floor() * step;
        let low = if low >= 0.0 { down(low - room).max(0.0) } else { down(low - room) };
        let up = -down(-(high + room));
        let high = if high <= 1.0 { up.min(1.0) } else { up };
        Self { low, high, scale: Scale::Percent }
    }

    /// Returns an axis for these differences, zero included.
    pub fn differences(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values.into_iter().chain([0.0])).unwrap_or((0.0, 0.0));
        let room = ((high - low) * 0.08).max(0.005);
        Self { low: low - room, high: high + room, scale: Scale::Points }
    }

    /// Returns an axis for these logarithms of ratios to base 2, that of 1 included.
    pub fn ratios(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values.into_iter().chain([-0.5, 0.5])).unwrap_or((-0.5, 0.5));
        let room = (high - low) * 0.06;
        Self { low: low - room, high: high + room, scale: Scale::Ratios }
    }

    /// Returns an axis of `count` rows, the first on top.
    pub fn rows(count: usize) -> Self {
        Self { low: count as f64 - 0.5, high: -0.5, scale: Scale::Rows }
    }

    fn range(self) -> std::ops::Range<f64> {
        self.low..self.high
    }

    /// Returns the number of ticks that fit.
    fn ticks(self, length: f64, each: f64) -> usize {
        if self.scale == Scale::Rows { 0 } else { ((length / each) as usize).clamp(5, 9) }
    }
}

impl Scale {
    fn words(self, value: f64) -> String {
        match self {
            Self::Cost => number::tick(value),
            Self::Percent => number::percent_tick(value),
            Self::Points => number::points(value).trim_end_matches(".0").to_owned(),
            Self::Ratios => number::times_tick(value.exp2()),
            Self::Rows => String::new(),
        }
    }
}

/// Returns the smallest and the largest finite value.
fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(None, |ends, v| Some(ends.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v)))))
}

/// Returns the finite values and interval ends of points.
pub fn heights(points: &[(f64, Estimate)]) -> impl Iterator<Item = f64> {
    points.iter().flat_map(|(_, e)| [Some(e.value), e.low, e.high]).flatten().filter(|v| v.is_finite())
}

/// Returns the largest cost of some points.
pub fn farthest(points: &[(f64, Estimate)]) -> f64 {
    points.iter().map(|(x, _)| *x).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

fn rgb(hex: &str) -> RGBColor {
    let part = |from: usize| hex.get(from..from + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    RGBColor(part(1).unwrap_or(0), part(3).unwrap_or(0), part(5).unwrap_or(0))
}
