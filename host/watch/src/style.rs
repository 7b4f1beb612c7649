//! Capabilities of a terminal: the sixteen standard colours, and characters beyond ASCII.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::symbols::Marker;

/// Colours of arms. The first ones are readable on light and on dark backgrounds.
const COLOURS: [Color; 10] = [
    Color::Green,
    Color::Magenta,
    Color::Cyan,
    Color::Red,
    Color::Blue,
    Color::Yellow,
    Color::LightRed,
    Color::LightBlue,
    Color::LightMagenta,
    Color::LightGreen,
];

/// Capabilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether colours are used.
    pub colour: bool,
    /// Whether characters beyond ASCII are used.
    pub unicode: bool,
}

impl Style {
    /// Returns the style that the environment asks for: `NO_COLOR`, and the locale.
    pub fn here() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase().replace('-', "");
        Self { colour: set("NO_COLOR").is_none(), unicode: cfg!(windows) || locale.contains("utf8") }
    }

    /// Returns the colour of an arm.
    pub fn arm(self, arm: usize) -> Color {
        if self.colour { COLOURS[arm % COLOURS.len()] } else { Color::Reset }
    }

    /// Returns the text style of an arm.
    pub fn text(self, arm: usize) -> Ink {
        Ink::new().fg(self.arm(arm)).add_modifier(Modifier::BOLD)
    }

    /// Returns the style of a state that is a problem.
    pub fn bad(self) -> Ink {
        if self.colour { Ink::new().fg(Color::Red) } else { Ink::new().add_modifier(Modifier::BOLD) }
    }

    /// Returns the marker of which curves are made.
    pub fn marker(self) -> Marker {
        if self.unicode { Marker::Braille } else { Marker::Dot }
    }

    /// Replaces characters that the terminal cannot show with ASCII.
    pub fn settle(self, buffer: &mut Buffer) {
        if self.unicode {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                let sign = match cell.symbol() {
                    "│" => "|",
                    "└" | "┤" | "┴" => "+",
                    "█" => "#",
                    "─" | "░" | "–" => "-",
                    "•" => "*",
                    "→" => ">",
                    "…" => "~",
                    _ => "?",
                };
                cell.set_symbol(sign);
            }
        }
    }
}

/// Returns an arm's letter, which identifies it without colours.
pub fn letter(arm: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.cycle().nth(arm % 52).unwrap_or('?')
}
