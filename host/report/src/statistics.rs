//! Statistics over seeds: what a few runs of each arm say about the arms, and how surely.
//!
//! Functions of numbers alone: no records, no files, no clock. What is random comes out of a seed, and is
//! the same on every machine. Where the data do not say, there is `None` or an [`Unfit`], never a number
//! made up. What rliable, lifelines, scipy or statsmodels computes too is computed as they do it, and
//! held against them in `tests/statistics.rs`.

use std::fmt;

use serde::Serialize;

mod bound;
mod curve;
mod paired;
mod power;
mod ratio;
mod resample;
mod scores;
mod student;
mod survival;

pub use bound::{Bound, bound};
pub use curve::{Band, band};
pub use paired::{Difference, FLIPS, SignFlip, TTest, difference, holm, sign_flip};
pub use power::{MOST_SEEDS, Needed, POWER, power, seeds_needed};
pub use ratio::{Ratio, geometric_mean, ratio};
pub use resample::{Bootstrap, Draws, Random, percentile};
pub use scores::{Aggregate, Scores, aggregate, improvement, probability_of_improvement};
pub use survival::{MedianInterval, Step, Survival, Wait};

/// The two ends of an interval, in the unit of what it is an interval of.
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
    /// The statistic of the data as they are.
    pub value: f64,
    /// Where a bootstrap puts it. One run gives an interval of no width, which says nothing about runs.
    pub interval: Interval,
}

/// Why there is no answer for some data.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfit {
    /// No runs, no columns, no resamples or no p-values.
    Empty,
    /// Rows of a table differ in length.
    Ragged {
        /// The row.
        row: usize,
        /// Its length.
        columns: usize,
        /// The length of the first row.
        expected: usize,
    },
    /// Two arms that should have a number for each seed, or for each task, do not pair up.
    Unpaired {
        /// How many the one has.
        left: usize,
        /// How many the other has.
        right: usize,
    },
    /// A number is not finite, or is outside of what its kind may be.
    OutOfRange {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// Indices given from outside don't fit the data.
    Draws {
        /// Which resample.
        resample: usize,
        /// How many indices the data need.
        expected: usize,
    },
    /// The statistic is not finite on the data, or no number on a resample of them: a division by 0, 0 / 0.
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

/// Passes a number that satisfies its rule.
fn within(what: &'static str, value: f64, fits: bool) -> Result<f64, Unfit> {
    if fits { Ok(value) } else { Err(Unfit::OutOfRange { what, value }) }
}

/// Passes a level of confidence or of significance: above 0, below 1.
fn level_within(what: &'static str, level: f64) -> Result<f64, Unfit> {
    within(what, level, level > 0.0 && level < 1.0)
}

/// Passes numbers that are finite, and not none.
fn finite<'a>(what: &'static str, values: &'a [f64]) -> Result<&'a [f64], Unfit> {
    if values.is_empty() {
        return Err(Unfit::Empty);
    }
    values.iter().try_for_each(|value| within(what, *value, value.is_finite()).map(drop))?;
    Ok(values)
}

/// Passes two arms that have a finite number for each of the same seeds.
fn paired_up(what: &'static str, arm: &[f64], baseline: &[f64]) -> Result<(), Unfit> {
    if arm.len() != baseline.len() {
        return Err(Unfit::Unpaired { left: arm.len(), right: baseline.len() });
    }
    finite(what, arm)?;
    finite(what, baseline).map(drop)
}

/// The mean of numbers that are not none.
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
