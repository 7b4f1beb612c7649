//! Statistics over seeds: inference on arms from a few runs of each.
//!
//! All are functions of numbers, without records, files or clock. Randomness comes from a seed and is the
//! same on every machine. If the data do not determine an answer, it is `None` or an [`Unfit`]. Statistics
//! that rliable, lifelines, scipy or statsmodels have, too, are computed in the same way, and compared with
//! them in `tests/statistics.rs`.

use std::fmt;

use serde::Serialize;

mod apart;
mod bound;
mod curve;
mod paired;
mod power;
mod ratio;
mod resample;
mod scores;
mod student;
mod survival;

pub use apart::apart;
pub use bound::{Bound, bound};
pub use curve::{Band, band};
pub use paired::{Difference, FLIPS, SignFlip, TTest, difference, holm, sign_flip};
pub use power::{MOST_SEEDS, Needed, POWER, power, seeds_needed};
pub use ratio::{Ratio, geometric_mean, ratio, ratio_apart};
pub use resample::{Bootstrap, Draws, Random, percentile};
pub use scores::{Aggregate, Scores, aggregate, improvement, probability_of_improvement};
pub use survival::{MedianInterval, Step, Survival, Wait};

/// The ends of an interval, in the unit of its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A number with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The statistic of the data.
    pub value: f64,
    /// Its bootstrap interval. With one run it has no width, which says nothing about other runs.
    pub interval: Interval,
}

/// Reason why data have no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfit {
    /// No runs, no columns, no resamples or no p-values.
    Empty,
    /// Rows of a table have different lengths.
    Ragged {
        /// The row.
        row: usize,
        /// Its length.
        columns: usize,
        /// The length of the first row.
        expected: usize,
    },
    /// Two arms do not have one number for each of the same seeds or tasks.
    Unpaired {
        /// Number of values in one arm.
        left: usize,
        /// Number of values in the other arm.
        right: usize,
    },
    /// A number is not finite, or not in its range.
    OutOfRange {
        /// Meaning of the number.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// Given indices do not fit the data.
    Draws {
        /// Index of the resample.
        resample: usize,
        /// Number of indices needed.
        expected: usize,
    },
    /// The statistic is not finite on the data, or NaN on a resample: a division by 0, or 0 / 0.
    Undefined,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "there are no numbers to go by"),
            Self::Ragged { row, columns, expected } => {
                write!(f, "row {row} has {columns} columns where the first has {expected}")
            }
            Self::Unpaired { left, right } => write!(f, "{left} numbers can't be paired with {right}"),
            Self::OutOfRange { what, value } => write!(f, "{what} can't be {value}"),
            Self::Draws { resample, expected } => {
                write!(f, "resample {resample} is not {expected} indices of runs that exist")
            }
            Self::Undefined => {
                write!(f, "the statistic divides by 0 on the data, or is 0 / 0 on a resample of them")
            }
        }
    }
}

impl std::error::Error for Unfit {}

/// Returns a number if it satisfies its rule, else an error.
fn within(what: &'static str, value: f64, fits: bool) -> Result<f64, Unfit> {
    if fits { Ok(value) } else { Err(Unfit::OutOfRange { what, value }) }
}

/// Returns a level of confidence or significance if it is above 0 and below 1, else an error.
fn level_within(what: &'static str, level: f64) -> Result<f64, Unfit> {
    within(what, level, level > 0.0 && level < 1.0)
}

/// Returns numbers if there are any and all are finite, else an error.
fn finite<'a>(what: &'static str, values: &'a [f64]) -> Result<&'a [f64], Unfit> {
    if values.is_empty() {
        return Err(Unfit::Empty);
    }
    values.iter().try_for_each(|value| within(what, *value, value.is_finite()).map(drop))?;
    Ok(values)
}

/// Checks that two arms have a finite number for each of the same seeds.
fn paired_up(what: &'static str, arm: &[f64], baseline: &[f64]) -> Result<(), Unfit> {
    if arm.len() != baseline.len() {
        return Err(Unfit::Unpaired { left: arm.len(), right: baseline.len() });
    }
    finite(what, arm)?;
    finite(what, baseline).map(drop)
}

/// Returns the mean of numbers, of which there must be at least one.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unfit_is_told_in_words() {
        let told = [
            (Unfit::Empty, "no numbers"),
            (Unfit::Ragged { row: 2, columns: 3, expected: 4 }, "row 2 has 3 columns"),
            (Unfit::Unpaired { left: 5, right: 4 }, "5 numbers can't be paired with 4"),
            (Unfit::OutOfRange { what: "a score", value: f64::NAN }, "a score can't be NaN"),
            (Unfit::Draws { resample: 7, expected: 12 }, "resample 7 is not 12"),
            (Unfit::Undefined, "0 / 0"),
        ];
        for (unfit, words) in told {
            assert!(unfit.to_string().contains(words), "{unfit}");
        }
    }

    #[test]
    fn levels_lie_between_0_and_1() {
        assert_eq!(level_within("a level", 0.95), Ok(0.95));
        for level in [0.0, 1.0, -1.0, 95.0, f64::NAN] {
            assert!(level_within("a level", level).is_err(), "{level}");
        }
    }
}
