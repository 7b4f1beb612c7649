//! The whole view: the layout of its parts, and which ones are dropped in a small terminal.

use std::fmt::Write as _;
use std::path::PathBuf;

use allot_base::count;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::text::{Line, Span};

use super::chart::{Chart, Curve, Unit};
use super::scene::{RunRow, Scene};
use super::style::{Style, letter};
use super::table;

/// Columns and rows.
pub type Size = (u16, u16);

/// Minimum size of the view.
const LEAST: Size = (30, 5);

/// Minimum height of the charts.
const LOWEST: u16 = 7;

/// Minimum width of two charts side by side.
const TWO_WIDE: u16 = 70;

/// Minimum number of rows of a plain-text view beyond those of its runs.
const BESIDE: u16 = 16;

/// The user's selection.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The selected run.
    pub run: Option<PathBuf>,
    /// Index of the first row that the table shows.
    pub top: usize,
    /// Number of rows that the table showed last.
    pub page: usize,
}

/// A move of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// By this many rows; negative is up.
    By(isize),
    /// By this many pages; negative is up.
    Pages(isize),
    /// To the first row.
    First,
    /// To the last row.
    Last,
}

impl Choice {
    /// Returns the current row of the selected run.
    pub fn place(&self, scene: &Scene) -> Option<usize> {
        scene.runs.iter().position(|row| Some(&row.path) == self.run.as_ref())
    }

    /// Moves the selection.
    pub fn go(&mut self, to: Move, scene: &Scene) {
        let Some(last) = scene.runs.len().checked_sub(1) else { return };
        let page = self.page.max(1) as isize;
        let to = match (to, self.place(scene)) {
            (Move::First, _) => 0,
            (Move::Last, _) => last,
            // The first move selects the first visible row.
            (Move::By(_) | Move::Pages(_), None) => self.top.min(last),
            (Move::By(n), Some(place)) => place.saturating_add_signed(n).min(last),
            (Move::Pages(n), Some(place)) => place.saturating_add_signed(n * page).min(last),
        };
        self.run = Some(scene.runs[to].path.clone());
    }
}

/// Areas of the parts of the view.
struct Places {
    head: Rect,
    charts: Option<Rect>,
    legend: Option<Rect>,
    table: Rect,
    foot: Option<Rect>,
}

impl Places {
    /// Lays out the view, with a table of `rows` rows, titles included, if they fit.
    fn of(area: Rect, rows: u16, legend: bool, live: bool) -> Self {
        let Rect { height, .. } = area;
        let foot = if height >= 20 { 2 } else { u16::from(height >= 8) } * u16::from(live);
        let rest = height - 1 - foot;
        // A view that cannot scroll shows the whole table.
        let least = if live { rows.min((height / 3).max(4)) } else { rows }.min(rest);
        let legend = u16::from(legend);
        let charts = rest.saturating_sub(least + legend);
        let (charts, legend) = if charts >= LOWEST { (charts, legend) } else { (0, 0) };
        let mut y = area.y;
        let mut next = |height: u16| {
            let place = Rect { y, height, ..area };
            y += height;
            Some(place).filter(|place| place.height > 0)
        };
        let head = next(1).unwrap_or(area);
        let (charts, legend) = (next(charts), next(legend));
        let taken = [charts, legend].iter().flatten().map(|place| place.height).sum::<u16>();
        let table = next(rest - taken).unwrap_or(Rect { height: 0, ..area });
        Self { head, charts, legend, table, foot: next(foot) }
    }
}

/// Draws the whole view. If `choice` is `None`, no keys are mentioned.
pub fn draw(scene: &Scene, choice: Option<&mut Choice>, area: Rect, buffer: &mut Buffer, style: Style) {
    if area.is_empty() {
        return;
    }
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!("too small: {}x{} at least", LEAST.0, LEAST.1);
        buffer.set_stringn(area.x, area.y, words, usize::from(area.width), Ink::new());
        return;
    }
    let mut none = Choice::default();
    let rows = (scene.runs.len() + 1).min(usize::from(u16::MAX)) as u16;
    let places = Places::of(area, rows, scene.arms.len() > 1, choice.is_some());
    let keys = choice.is_some();
    let choice = choice.unwrap_or(&mut none);
    let chosen = choice.place(scene);
    choice.page = usize::from(places.table.height).saturating_sub(1);
    scroll(choice, chosen, scene.runs.len());
    head(scene, choice, keys, places.head, buffer);
    if let Some(area) = places.charts {
        charts(scene, chosen, area, buffer, style);
    }
    if let Some(area) = places.legend {
        legend(scene, area, buffer, style);
    }
    if scene.runs.is_empty() {
        let words = scene.empty.iter().map(|empty| format!("{} yet; waiting", empty.words()));
        for (words, y) in words.zip(places.table.top()..places.table.bottom()) {
            buffer.set_stringn(area.x, y, words, usize::from(area.width), Ink::new());
        }
    } else {
        table::draw(scene, choice.top, chosen, places.table, buffer, style);
    }
    if let Some(area) = places.foot {
        foot(scene, chosen, area, buffer);
    }
    style.settle(buffer);
}

/// Keeps the selected run visible and the table full.
fn scroll(choice: &mut Choice, chosen: Option<usize>, runs: usize) {
    let page = choice.page.max(1);
    if let Some(chosen) = chosen {
        choice.top = choice.top.clamp((chosen + 1).saturating_sub(page), chosen);
    }
    choice.top = choice.top.min(runs.saturating_sub(page));
}

fn head(scene: &Scene, choice: &Choice, keys: bool, area: Rect, buffer: &mut Buffer) {
    let mut words = format!("{}: ", count(scene.runs.len() as u64, "run"));
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for row in &scene.runs {
        let word = row.state.word();
        // Stalled runs count together, however long they have stalled.
        let word = word.split(' ').next().unwrap_or_default().to_owned();
        match kinds.iter_mut().find(|(known, _)| *known == word) {
            Some((_, n)) => *n += 1,
            None => kinds.push((word, 1)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(word, n)| format!("{n} {word}")).collect();
    words += &kinds.join(", ");
    if scene.runs.is_empty() {
        "no runs".clone_into(&mut words);
    }
    if scene.is_over() {
        words += "; all over";
    }
    let (runs, page) = (scene.runs.len(), choice.page);
    if runs > page && page > 0 {
        let _ = write!(words, "  [{}-{} of {runs}]", choice.top + 1, (choice.top + page).min(runs));
    }
    let bold = Ink::new().add_modifier(Modifier::BOLD);
    let line = Line::from(vec![Span::styled("allot watch", bold), Span::raw("  "), Span::raw(words)]);
    let width = line.width() as u16;
    buffer.set_line(area.x, area.y, &line, area.width);
    let quits = "q quits";
    if keys && width + 2 + (quits.len() as u16) <= area.width {
        buffer.set_string(area.right() - quits.len() as u16, area.y, quits, Ink::new());
    }
}

fn charts(scene: &Scene, chosen: Option<usize>, area: Rect, buffer: &mut Buffer, style: Style) {
    let scores =
        chart(scene, chosen, style, "held-out accuracy by rollouts", "no evaluation yet", Unit::Share);
    let wastes = chart(scene, chosen, style, "waste by step", "no step yet", Unit::Percent);
    if area.width >= TWO_WIDE {
        let left = area.width * 11 / 20;
        scores.draw(Rect { width: left, ..area }, buffer, style);
        wastes.draw(Rect { x: area.x + left, width: area.width - left, ..area }, buffer, style);
    } else if area.height >= 2 * LOWEST {
        let upper = area.height.div_ceil(2);
        scores.draw(Rect { height: upper, ..area }, buffer, style);
        wastes.draw(Rect { y: area.y + upper, height: area.height - upper, ..area }, buffer, style);
    } else {
        scores.draw(area, buffer, style);
    }
}

fn chart(
    scene: &Scene,
    chosen: Option<usize>,
    style: Style,
    title: &str,
    nothing: &'static str,
    unit: Unit,
) -> Chart {
    let several = scene.arms.len() > 1;
    let curve = |(i, row): (usize, &RunRow)| {
        let (arm, facts) = (row.arm?, row.facts.as_ref()?);
        let points = if unit == Unit::Share { facts.scores.clone() } else { facts.wastes.clone() };
        let thick = chosen == Some(i) && scene.runs.len() > 1;
        let colour = if thick { Color::Reset } else { style.arm(arm) };
        // One letter per arm is enough.
        let first = scene.runs.iter().position(|other| other.arm == Some(arm)) == Some(i);
        let letter = (several && (first || thick)).then(|| letter(arm));
        Some((thick, Curve { points, colour, thick, letter }))
    };
    let mut curves: Vec<(bool, Curve)> = scene.runs.iter().enumerate().filter_map(curve).collect();
    curves.sort_by_key(|(thick, _)| *thick);
    let curves = curves.into_iter().map(|(_, curve)| curve).collect();
    Chart { title: title.to_owned(), nothing, unit, curves }
}

/// Draws the letter and colour of each arm.
fn legend(scene: &Scene, area: Rect, buffer: &mut Buffer, style: Style) {
    let arm = |(i, name): (usize, &String)| {
        [Span::styled(format!(" {} ", letter(i)), style.text(i)), Span::raw(format!("{name} "))]
    };
    let line = Line::from(scene.arms.iter().enumerate().flat_map(arm).collect::<Vec<_>>());
    buffer.set_line(area.x, area.y, &line, area.width);
}

/// Draws the state and settings of the selected run, or the places without a run.
fn foot(scene: &Scene, chosen: Option<usize>, area: Rect, buffer: &mut Buffer) {
    let mut lines = Vec::new();
    if let Some(row) = chosen.and_then(|i| scene.runs.get(i)) {
        let reason =
            row.remark().map_or(String::new(), |reason| format!(": {}", super::scene::joined(&reason)));
        lines.push(format!("{}{reason}", row.state.word()));
        let settings = row.facts.iter().flat_map(|facts| &facts.settings);
        let settings: Vec<String> = settings.map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(format!(
            "{}  {}",
            super::scene::plain(&row.path.display().to_string()),
            settings.join(" ")
        ));
    } else if scene.runs.is_empty() {
        return;
    } else {
        lines.extend(scene.empty.iter().map(super::scene::Empty::words));
        lines.push("up and down choose a run".to_owned());
    }
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        let line = table::cut(line, usize::from(area.width));
        buffer.set_stringn(area.x, y, line, usize::from(area.width), Ink::new());
    }
}

/// Returns the view as plain text: all runs in its table, and below it the runs with problems.
pub fn plain(scene: &Scene, style: Style, (width, height): Size) -> String {
    let runs = scene.runs.len().min(500) as u16;
    let (width, height) = (width.clamp(LEAST.0, 500), height.clamp(LEAST.1, 300));
    let height = height.max(runs + BESIDE);
    let area = Rect { x: 0, y: 0, width, height };
    let mut buffer = Buffer::empty(area);
    draw(scene, None, area, &mut buffer, style);
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(width)) {
        let mut line = String::new();
        // A wide character covers the next cell.
        let mut covered = 0;
        for cell in row {
            if covered == 0 {
                line += cell.symbol();
                covered = Span::raw(cell.symbol()).width().max(1);
            }
            covered -= 1;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    let told = scene.runs.iter().filter(|row| !row.is_well());
    let told = told.filter_map(|row| Some(format!("{}: {}", row.name, row.remark()?)));
    for line in told.chain(scene.empty.iter().map(super::scene::Empty::words)) {
        text += "\n";
        text += &line;
    }
    text
}
