//! The whole picture: what stands where, and what goes first where there is little room.

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

/// The least that anything can be shown in.
const LEAST: Size = (30, 5);

/// The lowest that charts can be.
const LOWEST: u16 = 7;

/// Two charts side by side take as many columns.
const TWO_WIDE: u16 = 70;

/// Rows of a picture as plain text beside those of its runs, at the least.
const BESIDE: u16 = 16;

/// What a person chose to look at.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The run.
    pub run: Option<PathBuf>,
    /// The table's first row.
    pub top: usize,
    /// Rows that the table showed last.
    pub page: usize,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// So many rows down, or up.
    By(isize),
    /// So many pages down, or up.
    Pages(isize),
    /// To the first row.
    First,
    /// To the last row.
    Last,
}

impl Choice {
    /// Where the chosen run is now.
    pub fn place(&self, scene: &Scene) -> Option<usize> {
        scene.runs.iter().position(|row| Some(&row.path) == self.run.as_ref())
    }

    /// Chooses another.
    pub fn go(&mut self, to: Move, scene: &Scene) {
        let Some(last) = scene.runs.len().checked_sub(1) else { return };
        let page = self.page.max(1) as isize;
        let to = match (to, self.place(scene)) {
            (Move::First, _) => 0,
            (Move::Last, _) => last,
            // The first step down is onto the first row.
            (Move::By(_) | Move::Pages(_), None) => self.top.min(last),
            (Move::By(n), Some(place)) => place.saturating_add_signed(n).min(last),
            (Move::Pages(n), Some(place)) => place.saturating_add_signed(n * page).min(last),
        };
        self.run = Some(scene.runs[to].path.clone());
    }
}

/// Where things stand.
struct Places {
    head: Rect,
    charts: Option<Rect>,
    legend: Option<Rect>,
    table: Rect,
    foot: Option<Rect>,
}

impl Places {
    /// With a table of so many rows, titles included, where there is room for them.
    fn of(area: Rect, rows: u16, legend: bool, live: bool) -> Self {
        let Rect { height, .. } = area;
        let foot = if height >= 20 { 2 } else { u16::from(height >= 8) } * u16::from(live);
        let rest = height - 1 - foot;
        // What does not move is shown whole.
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

/// Draws all of it. Without a choice, nothing is said of keys.
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

/// Keeps the chosen run in sight, and the table full.
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
        // How long a run stands still is its own affair.
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
        // One of an arm is enough.
        let first = scene.runs.iter().position(|other| other.arm == Some(arm)) == Some(i);
        let letter = (several && (first || thick)).then(|| letter(arm));
        Some((thick, Curve { points, colour, thick, letter }))
    };
    let mut curves: Vec<(bool, Curve)> = scene.runs.iter().enumerate().filter_map(curve).collect();
    curves.sort_by_key(|(thick, _)| *thick);
    let curves = curves.into_iter().map(|(_, curve)| curve).collect();
    Chart { title: title.to_owned(), nothing, unit, curves }
}

/// Which sign and colour is whose.
fn legend(scene: &Scene, area: Rect, buffer: &mut Buffer, style: Style) {
    let arm = |(i, name): (usize, &String)| {
        [Span::styled(format!(" {} ", letter(i)), style.text(i)), Span::raw(format!("{name} "))]
    };
    let line = Line::from(scene.arms.iter().enumerate().flat_map(arm).collect::<Vec<_>>());
    buffer.set_line(area.x, area.y, &line, area.width);
}

/// What there is to say of the chosen run, or of what is missing.
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

/// The picture as plain text: with all runs in its table, and what is not in order told below it.
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
        // What follows a wide sign is covered by it.
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
