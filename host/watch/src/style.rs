//! What a terminal can show: colours, of the sixteen that every one has, and signs beyond ASCII.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::symbols::Marker;

/// The colours of arms, those first that can be read on light and on dark.
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

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether it shows colours, and should.
    pub colour: bool,
    /// Whether it shows signs beyond ASCII.
    pub unicode: bool,
}

impl Style {
    /// What the surroundings say: `NO_COLOR`, and the locale.
    pub fn here() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase().replace('-', "");
        Self { colour: set("NO_COLOR").is_none(), unicode: cfg!(windows) || locale.contains("utf8") }
    }

    /// An arm's colour.
    pub fn arm(self, arm: usize) -> Color {
        if self.colour { COLOURS[arm % COLOURS.len()] } else { Color::Reset }
    }

    /// The same for text.
    pub fn text(self, arm: usize) -> Ink {
        Ink::new().fg(self.arm(arm)).add_modifier(Modifier::BOLD)
    }

    /// What is not as it should be.
    pub fn bad(self) -> Ink {
        if self.colour { Ink::new().fg(Color::Red) } else { Ink::new().add_modifier(Modifier::BOLD) }
    }

    /// What curves are made of.
    pub fn marker(self) -> Marker {
        if self.unicode { Marker::Braille } else { Marker::Dot }
    }

    /// Puts plain signs for those that the terminal can't show.
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

/// An arm's sign, which tells it where colours do not.
pub fn letter(arm: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.cycle().nth(arm % 52).unwrap_or('?')
}
