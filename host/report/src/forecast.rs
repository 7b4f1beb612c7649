//! What a page of a forecast shows: what each policy would pay on the prompts of a log to learn as much as the baseline.
//!
//! The numbers are made elsewhere; this module does not know logs or policies.

use crate::number;
use crate::report::Estimate;

/// The units in which a policy pays: in file names and sentences, and as titles.
pub const UNITS: [(&str, &str); 3] =
    [("rollouts", "Rollouts"), ("tokens", "Generated tokens"), ("operations", "Operations")];

/// A forecast.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The page's title.
    pub title: String,
    /// The log in a sentence.
    pub log: String,
    /// What was simulated, in a sentence.
    pub about: String,
    /// The policies, in the order of the table.
    pub policies: Vec<Policy>,
    /// Place of the baseline among them.
    pub baseline: usize,
    /// The baseline's best step, as in `2 of each of 48`, if it is not that of the forecast.
    pub best: Option<String>,
    /// For each of [`UNITS`], why it is unknown, if it is.
    pub unknown: [Option<String>; 3],
    /// Prompts by pass rate: never right, ten equal parts each with its upper end, always right.
    pub pass_rates: [u64; 12],
    /// What follows for a run, in a sentence without its point.
    pub advice: String,
    /// Policies that are not in the table, and why.
    pub left_out: Vec<String>,
    /// What the log cannot tell.
    pub limits: Vec<String>,
    /// How the log was read.
    pub reading: Vec<String>,
    /// Settings: names and values.
    pub settings: Vec<(String, String)>,
}

/// A policy's row.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it pays to learn as much as the baseline, in each of [`UNITS`] that is known.
    pub pays: [Option<f64>; 3],
    /// How many times less that is than the baseline pays, where it is known; none for the baseline.
    pub fewer: [Option<Estimate>; 3],
    /// How many times fewer rollouts it pays than the baseline does with its best step, if that is another.
    pub than_best: Option<Estimate>,
    /// Rollouts that it samples until a thousand had an advantage.
    pub effective: f64,
    /// The share of its rollouts that a fitted model made up, where it is large enough to be told.
    pub modelled: Option<f64>,
    /// The share of what it trained on that it had trained on before, if it replays.
    pub replayed: Option<f64>,
    /// Mean number of updates on each of its prompts, where it is much larger than the baseline's.
    pub often: Option<f64>,
    /// The share of what it trained on that is from zero-variance groups, where it is large enough to be told.
    pub zero_variance: Option<f64>,
}

/// Says what a ratio shows if it is not to be shown with its interval: the interval has 1 in it, as it is shown, or there is none.
pub fn finding(ratio: Estimate) -> Option<String> {
    match ratio.low.zip(ratio.high) {
        Some((low, high)) if low <= 1.005 && high >= 0.995 => Some("no difference shown".to_owned()),
        Some(_) => None,
        None => Some(number::compared(ratio.value) + ", of few prompts"),
    }
}

/// Returns the bar of a pass rate in [`Forecast::pass_rates`].
pub fn bar(right: usize, rollouts: usize) -> usize {
    match right {
        0 => 0,
        _ if right >= rollouts => 11,
        // The upper end belongs to a bar: 1 of 10 is in the first.
        _ => (10 * right).div_ceil(rollouts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_rate_has_one_bar() {
        let bars = [(0, 8), (1, 100), (1, 10), (2, 10), (1, 2), (99, 100), (8, 8)].map(|(r, n)| bar(r, n));
        assert_eq!(bars, [0, 1, 1, 2, 5, 10, 11]);
    }
}
