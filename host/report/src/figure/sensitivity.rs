//! Results of trials against each tuned setting: a small plot per setting, with a dot for each trial.

use super::Size;
use super::sheet::{Anchor, Sheet, Stroke};
use crate::colour::{self, Ink};
use crate::number::{self, shown};
use crate::sensitivity::shares;
use crate::tables::tuning::short;
use crate::tuning::{Tuned, TunedArm, Tuning};

/// Space above a plot for its labels, and below it for the ends of its range.
const ABOVE: f64 = 36.0;
const BELOW: f64 = 22.0;
/// Space for an arm's name above its plots.
const NAME: f64 = 24.0;

/// Draws the figure; `None` if no trial has an accuracy.
pub fn draw(tuning: &Tuning, size: Size) -> Option<String> {
    let across = if size == Size::Wide { 4 } else { 2 };
    let each = (size.width() - 40.0) / across as f64;
    let height = if size == Size::Wide { 84.0 } else { 70.0 };
    let line = ABOVE + height + BELOW;
    let lines = |arm: &TunedArm| arm.ranges.len().div_ceil(across) as f64;
    let accuracies = || {
        let first = tuning.arms.iter().flat_map(|arm| &arm.trials).filter_map(|t| t.rungs.first()?.accuracy);
        first.chain(tuning.goal.target)
    };
    let (low, high) = accuracies().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    if !(low.is_finite() && high.is_finite()) {
        return None;
    }
    let (low, high) = (low - 0.05 * (high - low).max(0.02), high + 0.05 * (high - low).max(0.02));
    let whole: f64 = tuning.arms.iter().map(|arm| NAME + line * lines(arm)).sum();
    let mut sheet = Sheet::new(size.width(), whole + 8.0);
    let mut top = 0.0;
    for (place, arm) in tuning.arms.iter().enumerate() {
        let ink = colour::of(0, place);
        sheet.name((8.0, top + 12.0), Anchor::Start, &arm.name, size.width() - 16.0);
        top += NAME;
        let shares = shares(arm);
        for (i, tuned) in arm.ranges.iter().enumerate() {
            let corner = (40.0 + each * (i % across) as f64, top + line * (i / across) as f64 + ABOVE);
            let plot =
                Plot { corner, size: (each - 18.0, height), ends: (low, high), target: tuning.goal.target };
            plot.frame(&mut sheet, i % across == 0, (tuned, shares[i]));
            plot.dots(&mut sheet, arm, i, ink);
        }
        top += line * lines(arm);
    }
    let names: Vec<&str> = tuning.arms.iter().map(|arm| arm.name.as_str()).collect();
    Some(sheet.finish(&format!(
        "Dots: the accuracy of each trial by the end of the first rung along each tuned setting, for {}. The numbers \
         are in the tables.",
        names.join(", ")
    )))
}

/// The plot of one setting of one arm.
struct Plot {
    corner: (f64, f64),
    size: (f64, f64),
    ends: (f64, f64),
    target: Option<f64>,
}

impl Plot {
    fn y(&self, accuracy: f64) -> f64 {
        self.corner.1 + self.size.1 * (1.0 - (accuracy - self.ends.0) / (self.ends.1 - self.ends.0))
    }

    fn frame(&self, sheet: &mut Sheet, first: bool, (tuned, share): (&Tuned, Option<f64>)) {
        let ((left, top), (width, height)) = (self.corner, self.size);
        sheet.name((left, top - 26.0), Anchor::Start, short(&tuned.key), width);
        let words = share.map_or_else(String::new, |share| {
            if share < 0.005 {
                "no visible effect".to_owned()
            } else {
                format!("goes with {:.0}\u{a0}%", 100.0 * share)
            }
        });
        sheet.text_in((left, top - 11.0), Anchor::Start, &words, colour::FAINT);
        let foot = top + height;
        sheet.line(
            &[(left, foot), (left + width, foot)],
            Stroke { colour: colour::RULE, width: 1.0, dash: None },
        );
        sheet.line(&[(left, top), (left, foot)], Stroke { colour: colour::GRID, width: 1.0, dash: None });
        if let Some(target) = self.target {
            let y = self.y(target);
            sheet.line(
                &[(left, y), (left + width, y)],
                Stroke { colour: colour::FAINT, width: 1.0, dash: Some("5 4") },
            );
        }
        if first {
            let tick = |accuracy: f64| number::percent_tick((100.0 * accuracy).round() / 100.0);
            sheet.text_in((left - 5.0, top + 4.0), Anchor::End, &tick(self.ends.1), colour::FAINT);
            sheet.text_in((left - 5.0, foot - 4.0), Anchor::End, &tick(self.ends.0), colour::FAINT);
        }
        let end = |end: Option<f64>| end.map(|x| shown(&x.into()).trim_end_matches(".0").to_owned());
        if let (Some(low), Some(high)) = (end(tuned.low), end(tuned.high)) {
            sheet.text_in((left, foot + 10.0), Anchor::Start, &low, colour::FAINT);
            sheet.text_in((left + width, foot + 10.0), Anchor::End, &high, colour::FAINT);
        }
    }

    fn dots(&self, sheet: &mut Sheet, arm: &TunedArm, key: usize, ink: Ink) {
        let tuned = &arm.ranges[key];
        let mut words: Vec<String> = arm.trials.iter().map(|t| shown(&t.values[key])).collect();
        words.sort();
        words.dedup();
        let place = |value: &serde_json::Value| {
            let among = || {
                let at = words.iter().position(|word| *word == shown(value))?;
                Some((at as f64 + 0.5) / words.len() as f64)
            };
            value.as_f64().and_then(|x| tuned.place(x)).or_else(among)
        };
        // The most important ones are drawn last, above the others.
        let rank = |number: u32| (number == arm.best, number == 0);
        let mut trials: Vec<_> = arm.trials.iter().collect();
        trials.sort_by_key(|trial| rank(trial.number));
        for trial in trials {
            let Some(x) = place(&trial.values[key]).filter(|x| (-0.2..=1.2).contains(x)) else { continue };
            let Some(accuracy) = trial.rungs.first().and_then(|m| m.accuracy) else { continue };
            let at = (self.corner.0 + 6.0 + x.clamp(-0.02, 1.02) * (self.size.0 - 12.0), self.y(accuracy));
            if trial.number == arm.best {
                sheet.dot(at, 6.0, ink.colour);
            } else if trial.number == 0 {
                sheet.dot(at, 5.0, ink.colour);
                sheet.dot(at, 3.0, "#ffffff");
            } else {
                sheet.dot(at, 3.0, colour::RULE);
            }
        }
    }
}
