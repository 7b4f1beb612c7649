//! One colour for each arm, in every figure and table.
//!
//! Okabe's and Ito's colours, which colour-blind readers can distinguish, without their yellow, which is
//! too light; then four more. The baseline is dark grey. From the seventh arm on, lines are dashed.

/// Line style of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ink {
    /// Its colour.
    pub colour: &'static str,
    /// Its dashes in SVG's notation; `None` for a solid line.
    pub dash: Option<&'static str>,
}

/// The baseline's colour.
pub const BASELINE: &str = "#3d3d3d";

const ARMS: [&str; 10] = [
    "#0072b2", // blue
    "#d55e00", // vermilion
    "#009e73", // green
    "#cc79a7", // purple
    "#e69f00", // orange
    "#56b4e9", // sky
    "#882255", // wine
    "#6a3d9a", // violet
    "#8c8c1f", // olive
    "#8c510a", // brown
];

const DASHES: [Option<&str>; 4] = [None, Some("7 3"), Some("2.5 2.5"), Some("9 3 2 3")];

/// Number of arms with the same dashes.
const TO_A_DASH: usize = 6;

/// Returns the line style of the arm with this index.
pub fn of(baseline: usize, arm: usize) -> Ink {
    if arm == baseline {
        return Ink { colour: BASELINE, dash: None };
    }
    let place = if arm > baseline { arm - 1 } else { arm };
    Ink { colour: ARMS[place % ARMS.len()], dash: DASHES[(place / TO_A_DASH) % DASHES.len()] }
}

/// Colours of the fates of rollouts; no arm has one of them.
pub mod fate {
    /// Trained on with an advantage.
    pub const LEARNED: &str = "#12355b";
    /// In a group with every rollout right.
    pub const RIGHT: &str = "#8fc1d4";
    /// In a group with every rollout wrong.
    pub const WRONG: &str = "#e8b796";
    /// Discarded from a mixed group, or without an advantage for another reason.
    pub const MIXED: &str = "#d9d3a5";
    /// Stale.
    pub const STALE: &str = "#a894bd";
    /// Without a verdict.
    pub const UNSCORABLE: &str = "#6b6b6b";
    /// Buffered at the end.
    pub const HELD: &str = "#d4d4d4";
}

/// Text.
pub const TEXT: &str = "#222222";
/// Axis labels.
pub const FAINT: &str = "#555555";
/// The grid.
pub const GRID: &str = "#e4e4e4";
/// A line at zero, and the bottom of a plot.
pub const RULE: &str = "#8a8a8a";

/// Text on a light part of a bar, which stays light on a dark page.
pub const ON_LIGHT: &str = "#1f1f1f";
/// Background of a figure.
pub const GROUND: &str = "#ffffff";
/// Background of a dark page.
pub const DARK_GROUND: &str = "#16191d";

/// Colours that differ on a dark page, each with its replacement on [`DARK_GROUND`]. All other colours are
/// used on both.
pub const DARK: [(&str, &str); 12] = [
    (TEXT, "#e6e6e6"),
    (FAINT, "#b4b8bd"),
    (GRID, "#33383f"),
    (RULE, "#7d858f"),
    (BASELINE, "#d0d3d6"),
    ("#0072b2", "#3f9fdb"),
    ("#882255", "#d0507f"),
    ("#6a3d9a", "#a583d6"),
    ("#8c8c1f", "#b0b042"),
    ("#8c510a", "#c08a4a"),
    (fate::LEARNED, "#2f6db3"),
    (fate::UNSCORABLE, "#8a8a8a"),
];

/// Whether text on a colour should be white.
pub fn is_dark(colour: &str) -> bool {
    let part = |from: usize| {
        colour.get(from..from + 2).and_then(|two| u8::from_str_radix(two, 16).ok()).map_or(0.0, f64::from)
    };
    0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5) < 140.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.2's contrast of two colours.
    fn contrast(one: &str, other: &str) -> f64 {
        let light = |colour: &str| {
            let part = |from: usize| {
                let whole = u8::from_str_radix(&colour[from..from + 2], 16).expect("a colour has digits");
                let share = f64::from(whole) / 255.0;
                if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) + 0.05
        };
        let (one, other) = (light(one), light(other));
        one.max(other) / one.min(other)
    }

    #[test]
    fn arms_and_text_are_seen_on_a_dark_page() {
        let dark =
            |light: &'static str| DARK.iter().find(|(from, _)| *from == light).map_or(light, |(_, to)| *to);
        for light in ARMS.into_iter().chain([BASELINE, RULE]) {
            let seen = contrast(dark(light), DARK_GROUND);
            assert!(seen >= 3.0, "{light}: {seen}");
        }
        for light in [TEXT, FAINT] {
            assert!(contrast(dark(light), DARK_GROUND) >= 4.5, "{light}");
        }
        // White text is drawn on this colour.
        assert!(contrast(dark(fate::LEARNED), "#ffffff") >= 4.5);
        for (i, one) in ARMS.iter().enumerate() {
            assert!(ARMS[..i].iter().all(|other| dark(other) != dark(one)), "{one}");
        }
    }
}
