//! Figures of a forecast: forest plots of ratios, and a histogram of pass rates.

use super::forest::{self, Row};
use super::panel::{Frame, Panel, Scale, Span};
use super::sheet::{Anchor, Sheet};
use super::{Size, shared};
use crate::colour::{self, fate};
use crate::forecast::{Forecast, UNITS, finding};
use crate::number;
use crate::report::Estimate;

/// Draws how many times fewer of a unit each policy pays; `None` if no ratio is known.
pub fn ratios(forecast: &Forecast, unit: usize, size: Size) -> Option<String> {
    let logarithm = |ratio: Estimate| Estimate {
        value: ratio.value.log2(),
        low: ratio.low.map(f64::log2),
        high: ratio.high.map(f64::log2),
    };
    let known = |place: usize| {
        let policy = &forecast.policies[place];
        let ratio = policy.fewer[unit].filter(|ratio| ratio.value.is_finite() && ratio.value > 0.0)?;
        let ends = ratio.low.zip(ratio.high).map(|(low, high)| number::compared_ends(low, high));
        let ends = ends.map_or_else(String::new, |(low, high)| format!(" [{low}, {high}]"));
        Some(Row {
            name: &policy.name,
            ink: colour::of(forecast.baseline, place),
            estimate: logarithm(ratio),
            words: finding(ratio).unwrap_or_else(|| number::compared(ratio.value) + &ends),
        })
    };
    let rows: Vec<Row<'_>> = (0..forecast.policies.len()).filter_map(known).collect();
    let ends = |row: &Row<'_>| [Some(row.estimate.value), row.estimate.low, row.estimate.high];
    let span = Span::ratios(rows.iter().flat_map(ends).flatten());
    let baseline = forecast.policies.get(forecast.baseline)?;
    let words = forest::Words {
        zero: &format!("as many as {}", baseline.name),
        axis: &format!("times fewer {}", UNITS[unit].0),
        told: &format!("What each policy pays in {}, against {}", UNITS[unit].0, baseline.name),
    };
    forest::draw(&rows, &words, span, size)
}

/// Draws the histogram of pass rates; `None` if there are no prompts.
pub fn pass_rates(forecast: &Forecast, size: Size) -> Option<String> {
    let bars = &forecast.pass_rates;
    let most = bars.iter().max().copied().filter(|most| *most > 0)?;
    let tall = if size == Size::Wide { 180.0 } else { 140.0 };
    let frame = Frame { left: 58.0, top: 30.0, width: size.width() - 58.0 - 16.0, height: tall };
    let sheet = shared(Sheet::new(size.width(), frame.top + frame.height + 52.0));
    let along = Span { low: -0.5, high: bars.len() as f64 - 0.5, scale: Scale::Rows };
    let panel = Panel::new(&sheet, frame, along, Span::costs(most as f64 * 1.05))?;
    panel.foot();
    panel.above("prompts");
    panel.below("pass rate in percent");
    let mut sheet = sheet.borrow_mut();
    for (i, count) in bars.iter().enumerate() {
        let (left, foot) = panel.at(i as f64 - 0.42, 0.0);
        let (right, top) = panel.at(i as f64 + 0.42, *count as f64);
        let colour = match i {
            0 => fate::WRONG,
            11 => fate::RIGHT,
            _ => fate::LEARNED,
        };
        sheet.bar((left, top), (right - left, foot - top), colour);
    }
    // The ends of the parts between them are below the gaps between bars.
    for tenth in 0..=10_u32 {
        let place = match tenth {
            0 => 0.0,
            10 => 11.0,
            n => f64::from(n) + 0.5,
        };
        let (x, foot) = panel.at(place, 0.0);
        sheet.text_in((x, foot + 13.0), Anchor::Middle, &(10 * tenth).to_string(), colour::FAINT);
    }
    let counts: Vec<String> = bars.iter().map(|count| number::count(*count)).collect();
    Some(sheet.finish(&format!(
        "Bars: prompts that were never right {}; by tenths of the pass rate {}; always right {}.",
        counts[0],
        counts[1..11].join(", "),
        counts[11]
    )))
}
