//! The table: a row for each run, with as many columns as the terminal has space for.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style as Ink};
use ratatui::text::Span;

use super::scene::{self, RunRow, Scene};
use super::style::{Style, letter};

/// Text for an unknown number.
const UNKNOWN: &str = "–";

/// Minimum width of a shortened name.
const NARROWEST: usize = 18;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Letter,
    Name,
    Arm,
    Seed,
    Step,
    Rollouts,
    Gauge,
    Accuracy,
    Waste,
    Rate,
    Speed,
    Left,
    State,
}

use Column::{Accuracy, Arm, Gauge, Left, Letter, Name, Rate, Rollouts, Seed, Speed, State, Step, Waste};

/// All columns, from left to right.
const ALL: [Column; 13] =
    [Letter, Name, Arm, Seed, Step, Rollouts, Gauge, Accuracy, Waste, Rate, Speed, Left, State];

/// Columns in the order in which a narrow terminal drops them.
const FIRST_TO_GO: [Column; 10] = [Rate, Seed, Arm, Gauge, Speed, Rollouts, Waste, Left, Step, Accuracy];

impl Column {
    fn title(self) -> &'static str {
        match self {
            Letter | Gauge => "",
            Name => "run",
            Arm => "policy",
            Seed => "seed",
            Step => "step",
            Rollouts => "rollouts",
            Accuracy => "accuracy",
            Waste => "waste",
            Rate => "roll/s",
            Speed => "tok/s",
            Left => "left",
            State => "state",
        }
    }

    fn is_left(self) -> bool {
        matches!(self, Letter | Name | Arm | Gauge | State)
    }

    fn text(self, row: &RunRow, scene: &Scene) -> String {
        let unknown = || UNKNOWN.to_owned();
        match (self, row.arm) {
            (Name, _) => return row.name.clone(),
            (State, _) => return state(row),
            (Letter, arm) => return arm.map_or(String::new(), |arm| letter(arm).to_string()),
            (Arm, Some(arm)) => return scene.arms[arm].clone(),
            _ => {}
        }
        let Some(facts) = &row.facts else { return unknown() };
        // A run that makes no progress has no rate.
        let moves = row.state.is_well() || matches!(row.state, scene::State::Stopped(_));
        let rate = |n: Option<f64>| n.filter(|_| moves).map_or_else(unknown, compact);
        match self {
            Seed => facts.seed.to_string(),
            Step => format!("{}/{}", facts.steps.0, facts.steps.1),
            Rollouts => match facts.rollouts {
                (n, Some(most)) => format!("{}/{}", compact(n as f64), compact(most as f64)),
                (n, None) => compact(n as f64),
            },
            Gauge => gauge(facts.pace.over),
            Accuracy => match facts.accuracy {
                Some((start, last)) if facts.scores.len() > 1 => format!("{start:.3}→{last:.3}"),
                Some((start, _)) => format!("{start:.3}"),
                None => unknown(),
            },
            Waste => facts.waste.map_or_else(unknown, |waste| format!("{:.0} %", 100.0 * waste)),
            Rate => rate(facts.pace.rollouts),
            Speed => rate(facts.pace.tokens),
            Left => facts.pace.left.filter(|_| row.state.goes_on()).map_or_else(unknown, time),
            Letter | Name | Arm | State => unknown(),
        }
    }
}

/// Returns the state, with its reason if it is a problem.
fn state(row: &RunRow) -> String {
    match row.state.reason().filter(|_| !row.state.is_well()) {
        Some(reason) => format!("{}: {}", row.state.word(), scene::joined(&reason)),
        None => row.state.word(),
    }
}

/// Draws the rows from index `top` on, as many as fit below the titles.
pub fn draw(scene: &Scene, top: usize, chosen: Option<usize>, area: Rect, buffer: &mut Buffer, style: Style) {
    let shown = || scene.runs.iter().enumerate().skip(top).take(usize::from(area.height).saturating_sub(1));
    let columns = fitted(scene, usize::from(area.width));
    for (i, row) in shown() {
        let y = area.y + 1 + (i - top) as u16;
        let chosen = chosen == Some(i);
        let base = if chosen { Ink::new().add_modifier(Modifier::REVERSED) } else { Ink::new() };
        buffer.set_style(Rect { y, height: 1, ..area }, base);
        let mut x = area.x;
        for (column, width) in &columns {
            let look = match (column, row.arm) {
                // Red could not be read on a reversed row.
                _ if chosen => base,
                (Letter, Some(arm)) => style.text(arm),
                (State, _) if !row.state.is_well() => style.bad(),
                _ => base,
            };
            let mut text = column.text(row, scene);
            // A reason shortened to a word or two is useless.
            if *column == State && wide(&text) > *width && *width < row.state.word().len() + 16 {
                text = row.state.word();
            }
            put(buffer, (x, y), *column, &text, *width, look);
            x += *width as u16 + 1;
        }
    }
    let mut x = area.x;
    for (column, width) in &columns {
        put(
            buffer,
            (x, area.y),
            *column,
            column.title(),
            *width,
            Ink::new().add_modifier(Modifier::UNDERLINED),
        );
        x += *width as u16 + 1;
    }
}

/// Draws a text in the space of a column.
fn put(buffer: &mut Buffer, at: (u16, u16), column: Column, text: &str, width: usize, look: Ink) {
    let text = match column {
        // Runs differ at the ends of their names.
        Name => cut_front(text, width),
        _ => cut(text, width),
    };
    let pad = if column.is_left() { 0 } else { width.saturating_sub(wide(&text)) };
    buffer.set_stringn(at.0 + pad as u16, at.1, text, width, look);
}

/// Returns the columns that fit, and their widths.
fn fitted(scene: &Scene, width: usize) -> Vec<(Column, usize)> {
    let wanted = |column: Column| {
        let texts = scene.runs.iter().map(|row| wide(&column.text(row, scene)));
        let widest = texts.max().unwrap_or(0).max(column.title().len());
        if column == Arm { widest.min(24) } else { widest }
    };
    let several = scene.arms.len() > 1;
    let told = |column: &Column| match column {
        Letter => several,
        // A simulation has no rates, and a finished run has no time left.
        Rate | Speed | Left => scene.runs.iter().any(|row| column.text(row, scene) != UNKNOWN),
        _ => true,
    };
    let columns = ALL.into_iter().filter(told);
    let mut columns: Vec<(Column, usize)> = columns.map(|column| (column, wanted(column))).collect();
    // Names and states can be shortened: they get the width that other columns leave.
    let short = scene.runs.iter().map(|row| row.state.word().len()).max().unwrap_or(0);
    let least = |(column, width): &(Column, usize)| match column {
        Name => (*width).min(NARROWEST),
        State => (*width).min(short.max(5)),
        _ => *width,
    };
    let room = |columns: &[(Column, usize)]| {
        let least: usize = columns.iter().map(least).sum();
        (width + 1).checked_sub(least + columns.len())
    };
    for gone in FIRST_TO_GO {
        if room(&columns).is_some() {
            break;
        }
        columns.retain(|(column, _)| *column != gone);
    }
    let mut room = room(&columns).unwrap_or(0);
    for wide in [Name, State] {
        for column in columns.iter_mut().filter(|(column, _)| *column == wide) {
            let least = least(column);
            let more = (column.1 - least).min(room);
            column.1 = least + more;
            room -= more;
        }
    }
    columns
}

/// Returns the width of a text in columns of the terminal.
fn wide(text: &str) -> usize {
    Span::raw(text).width()
}

/// Shortens a text to a width by cutting its end.
pub fn cut(text: &str, width: usize) -> String {
    shortened(text, width, |kept| _ = kept.pop(), |kept| format!("{kept}…"))
}

/// Shortens a text to a width by cutting its start.
pub fn cut_front(text: &str, width: usize) -> String {
    shortened(text, width, |kept| _ = kept.remove(0), |kept| format!("…{kept}"))
}

fn shortened(text: &str, width: usize, shorten: fn(&mut String), mark: fn(&str) -> String) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while !kept.is_empty() && wide(&kept) + 1 > width {
        shorten(&mut kept);
    }
    if width == 0 { kept } else { mark(&kept) }
}

/// Formats a number in about five characters.
pub fn compact(number: f64) -> String {
    let size = number.abs();
    let (scaled, unit) = match size {
        _ if !size.is_finite() => return UNKNOWN.to_owned(),
        _ if size < 9.95 && size.fract() > 0.0 => return format!("{number:.1}"),
        _ if size < 9_999.5 => return format!("{number:.0}"),
        _ if size < 999_950.0 => (number / 1e3, "k"),
        _ if size < 999_950_000.0 => (number / 1e6, "M"),
        _ if size < 999_950_000_000.0 => (number / 1e9, "G"),
        _ => return format!("{number:.0e}"),
    };
    let text = format!("{scaled:.1}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// Formats a duration in its two largest units.
pub fn time(seconds: f64) -> String {
    let all = seconds.clamp(0.0, 1e9).round() as u64;
    let (minutes, hours, days) = (all / 60, all / 3600, all / 86_400);
    match all {
        0..60 => format!("{all}s"),
        60..3600 => format!("{minutes}m {:02}s", all % 60),
        3600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

/// Draws a share as a bar of six characters.
fn gauge(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * 6.0).round() as usize;
    "█".repeat(full) + &"░".repeat(6 - full)
}
