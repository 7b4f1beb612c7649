//! A chart: curves between two axes that are fitted to the data. It knows nothing of runs.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::widgets::Widget as _;
use ratatui::widgets::canvas::{Canvas, Line, Points};

use super::style::Style;
use super::table::compact;

/// Columns before the plot: a label and the axis.
const LEFT: u16 = 6;

/// A chart.
pub struct Chart {
    /// Its title.
    pub title: String,
    /// Text shown while there is no curve.
    pub nothing: &'static str,
    /// Unit of the y axis.
    pub unit: Unit,
    /// The curves; the last one is drawn on top.
    pub curves: Vec<Curve>,
}

/// Format of the labels of the y axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, with two decimals.
    Share,
    /// In percent.
    Percent,
}

/// A curve.
pub struct Curve {
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Its colour.
    pub colour: Color,
    /// Whether it is drawn thick.
    pub thick: bool,
    /// Letter drawn at its end.
    pub letter: Option<char>,
}

/// An axis: its ends, and the values of its labels.
struct Axis {
    ends: [f64; 2],
    ticks: Vec<f64>,
}

impl Axis {
    /// Returns an axis from a little below `low`, but not below 0, to a little above `high`. It has about
    /// `about` ticks at round numbers, none finer than `finest`.
    fn fitted(low: f64, high: f64, about: u16, finest: f64) -> Self {
        let beyond = ((high - low) / 25.0).max(finest);
        let ends = [(low - beyond).max(0.0), high + beyond];
        Self { ends, ticks: Self::ticks(ends, about, finest) }
    }

    fn ticks([low, high]: [f64; 2], about: u16, finest: f64) -> Vec<f64> {
        let step = round((high - low) / f64::from(about)).max(finest);
        let (first, last) = ((low / step).ceil(), (high / step).floor());
        let count = (last - first).clamp(0.0, 100.0) as u32;
        (0..=count).map(|i| (first + f64::from(i)) * step).collect()
    }

    /// Returns the position of a value between the ends, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let [low, high] = self.ends;
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round(number: f64) -> f64 {
    if !(number.is_finite() && number > 0.0) {
        return 0.0;
    }
    let power = 10f64.powf(number.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= number * 0.999);
    digit.unwrap_or(10.0) * power
}

impl Chart {
    /// Draws the chart.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer, style: Style) {
        let title = Ink::new().add_modifier(Modifier::BOLD);
        buffer.set_stringn(area.x + 1, area.y, &self.title, usize::from(area.width.saturating_sub(1)), title);
        let plot = Rect {
            x: area.x + LEFT,
            y: area.y + 1,
            width: area.width.saturating_sub(LEFT + 1),
            height: area.height.saturating_sub(3),
        };
        if plot.width < 10 || plot.height < 3 {
            return;
        }
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        if points().next().is_none() {
            let x = plot.x + (plot.width.saturating_sub(self.nothing.len() as u16)) / 2;
            buffer.set_stringn(
                x,
                plot.y + plot.height / 2,
                self.nothing,
                usize::from(plot.width),
                Ink::new(),
            );
            return;
        }
        let ends = |values: &dyn Fn(&(f64, f64)) -> f64| {
            points().map(values).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        };
        let (low, high) = ends(&|point| point.1);
        let y = Axis::fitted(low, high, (plot.height / 3).max(3), 0.01);
        let ends = [0.0, ends(&|point| point.0).1.max(1.0)];
        let x = Axis { ends, ticks: Axis::ticks(ends, (plot.width / 9).max(1), 1.0) };
        self.axes(plot, buffer, &x, &y);
        self.curves(plot, buffer, style, &x, &y);
    }

    fn axes(&self, plot: Rect, buffer: &mut Buffer, x: &Axis, y: &Axis) {
        let look = Ink::new();
        for row in plot.top()..plot.bottom() {
            buffer.set_string(plot.x - 1, row, "│", look);
        }
        buffer.set_string(plot.x - 1, plot.bottom(), "└", look);
        for column in plot.left()..plot.right() {
            buffer.set_string(column, plot.bottom(), "─", look);
        }
        for tick in &y.ticks {
            let label = match self.unit {
                Unit::Share => format!("{tick:.2}"),
                Unit::Percent => format!("{:.0} %", 100.0 * tick),
            };
            let label = format!("{label:>width$}", width = usize::from(LEFT - 1));
            let row = row_of(plot, y, *tick);
            buffer.set_stringn(plot.x - LEFT, row, &label, usize::from(LEFT - 1), look);
            buffer.set_string(plot.x - 1, row, "┤", look);
        }
        // A label must end before the next begins.
        let mut free = plot.x;
        for tick in &x.ticks {
            let label = compact(*tick);
            let column = column_of(plot, x, *tick);
            let width = label.len() as u16;
            let start =
                column.saturating_sub(width / 2).clamp(plot.x, (plot.right() + 1).saturating_sub(width));
            if start >= free {
                buffer.set_string(column, plot.bottom(), if column == plot.x { "─" } else { "┴" }, look);
                buffer.set_string(start, plot.bottom() + 1, &label, look);
                free = start + width + 1;
            }
        }
    }

    fn curves(&self, plot: Rect, buffer: &mut Buffer, style: Style, x: &Axis, y: &Axis) {
        // A thick line is two lines, a quarter of a character's height apart.
        let half = (y.ends[1] - y.ends[0]) / f64::from(plot.height) / 4.0;
        let draw = |context: &mut ratatui::widgets::canvas::Context<'_>| {
            for curve in &self.curves {
                for up in if curve.thick { &[0.0, 1.0][..] } else { &[0.0] } {
                    let at = |(x, y): (f64, f64)| (x, y + up * half);
                    let points: Vec<(f64, f64)> = curve.points.iter().copied().map(at).collect();
                    context.draw(&Points { coords: &points, color: curve.colour });
                    for pair in points.windows(2) {
                        let [(x1, y1), (x2, y2)] = [pair[0], pair[1]];
                        context.draw(&Line { x1, y1, x2, y2, color: curve.colour });
                    }
                }
            }
        };
        Canvas::default()
            .marker(style.marker())
            .x_bounds(x.ends)
            .y_bounds(y.ends)
            .paint(draw)
            .render(plot, buffer);
        for curve in &self.curves {
            if let (Some(letter), Some(end)) = (curve.letter, curve.points.last()) {
                let look = Ink::new().fg(curve.colour).add_modifier(Modifier::BOLD);
                let column = (column_of(plot, x, end.0) + 1).min(plot.right());
                buffer.set_string(column, row_of(plot, y, end.1), letter.to_string(), look);
            }
        }
    }
}

fn row_of(plot: Rect, y: &Axis, value: f64) -> u16 {
    plot.y + ((1.0 - y.place(value)) * f64::from(plot.height - 1)).round() as u16
}

fn column_of(plot: Rect, x: &Axis, value: f64) -> u16 {
    plot.x + (x.place(value) * f64::from(plot.width - 1)).round() as u16
}
