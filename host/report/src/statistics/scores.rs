//! Aggregates of the scores of runs on tasks: those of rliable (Agarwal et al. 2021, "Deep reinforcement
//! learning at the edge of the statistical precipice", arXiv 2108.13264), as its `metrics.py` and
//! `library.py` (1.2.0) compute them.

use serde::{Deserialize, Serialize};

use super::resample::Block;
use super::{Bootstrap, Estimate, Unfit, finite, mean};

/// Scores of an arm, runs × columns: a row is a run (a seed), a column is a task or a point of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    runs: usize,
    columns: usize,
    /// Row after row, all finite.
    values: Vec<f64>,
}

impl Scores {
    /// Returns scores from rows of equal length. No rows, no columns and non-finite numbers are [`Unfit`].
    pub fn new<RunRow: AsRef<[f64]>>(rows: &[RunRow]) -> Result<Self, Unfit> {
        let expected = rows.first().ok_or(Unfit::Empty)?.as_ref().len();
        let mut values = Vec::with_capacity(rows.len() * expected);
        for (row, scores) in rows.iter().enumerate() {
            let scores = scores.as_ref();
            if scores.len() != expected {
                return Err(Unfit::Ragged { row, columns: scores.len(), expected });
            }
            values.extend_from_slice(finite("a score", scores)?);
        }
        Ok(Self { runs: rows.len(), columns: expected, values })
    }

    /// Returns scores from the runs of one task.
    pub fn of_one_task(runs: &[f64]) -> Result<Self, Unfit> {
        Ok(Self { runs: runs.len(), columns: 1, values: finite("a score", runs)?.to_vec() })
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the runs' scores in one column.
    pub(super) fn column(&self, column: usize) -> impl ExactSizeIterator<Item = f64> {
        self.values.iter().skip(column).step_by(self.columns).copied()
    }

    /// Writes a resample: each cell gets the score in its own column of the run that its index names.
    fn resample_into(&self, indices: &[u32], resample: &mut Self) {
        for (at, (value, run)) in resample.values.iter_mut().zip(indices).enumerate() {
            *value = self.values[*run as usize * self.columns + at % self.columns];
        }
    }
}

/// An aggregate of the scores of runs on tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    /// The mean.
    Mean,
    /// The median over tasks of the mean over runs.
    Median,
    /// The interquartile mean: of all runs and tasks together, without the lowest and the highest quarter
    /// (each rounded down). As `scipy.stats.trim_mean`.
    Iqm,
    /// Mean shortfall of scores below a threshold; scores above it have none.
    OptimalityGap {
        /// The threshold: 1 in rliable.
        gamma: f64,
    },
}

impl Aggregate {
    /// Returns the aggregate of scores, in their unit.
    pub fn of(self, scores: &Scores) -> f64 {
        match self {
            Self::Mean => mean((0..scores.columns).map(|task| mean(scores.column(task)))),
            Self::Median => {
                let mut means: Vec<f64> = (0..scores.columns).map(|task| mean(scores.column(task))).collect();
                means.sort_unstable_by(f64::total_cmp);
                let n = means.len();
                if n % 2 == 1 { means[n / 2] } else { f64::midpoint(means[n / 2 - 1], means[n / 2]) }
            }
            Self::Iqm => iqm(scores.values.clone()),
            Self::OptimalityGap { gamma } => gamma - mean(scores.values.iter().map(|score| score.min(gamma))),
        }
    }
}

/// Returns the interquartile mean of numbers, of which there must be at least one.
pub(super) fn iqm(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let cut = values.len() / 4;
    mean(values[cut..values.len() - cut].iter().copied())
}

/// Returns an aggregate with its interval by the stratified bootstrap: runs are resampled for each task by
/// itself (rliable, `StratifiedBootstrap`), so a run's scores on different tasks are not tied together.
///
/// Given indices: runs × tasks, row after row.
pub fn aggregate(bootstrap: &Bootstrap, scores: &Scores, aggregate: Aggregate) -> Result<Estimate, Unfit> {
    let mut resample = scores.clone();
    let block = Block { count: scores.values.len(), runs: scores.runs };
    let interval = bootstrap.interval(&[block], |indices| {
        scores.resample_into(indices, &mut resample);
        aggregate.of(&resample)
    })?;
    Ok(Estimate { value: aggregate.of(scores), interval })
}

/// Returns the probability that a run of `x` scores above a run of `y` on the same task; ties count half.
/// Mean over tasks of the Mann-Whitney statistic per pair (rliable, `probability_of_improvement`).
///
/// The arms may have different runs, but must have the same tasks.
pub fn probability_of_improvement(x: &Scores, y: &Scores) -> Result<f64, Unfit> {
    if x.columns == y.columns {
        Ok(improvement_of(x, y))
    } else {
        Err(Unfit::Unpaired { left: x.columns, right: y.columns })
    }
}

/// The probability of improvement for arms with the same tasks.
fn improvement_of(x: &Scores, y: &Scores) -> f64 {
    let of_task = |task| {
        let wins = |score: f64| y.column(task).map(|other| win(score, other)).sum::<f64>();
        x.column(task).map(wins).sum::<f64>() / (x.runs * y.runs) as f64
    };
    mean((0..x.columns).map(of_task))
}

/// Returns 1 for a win, a half for a tie, 0 for a loss.
fn win(score: f64, other: f64) -> f64 {
    if score > other {
        1.0
    } else if score == other {
        0.5
    } else {
        0.0
    }
}

/// Returns the probability of improvement with its interval by the stratified bootstrap, with each arm
/// resampled separately (rliable, `StratifiedIndependentBootstrap`).
///
/// Given indices: those of `x`, runs × tasks, row after row, and then those of `y`.
pub fn improvement(bootstrap: &Bootstrap, x: &Scores, y: &Scores) -> Result<Estimate, Unfit> {
    let value = probability_of_improvement(x, y)?;
    let (mut of_x, mut of_y) = (x.clone(), y.clone());
    let blocks = [x, y].map(|arm| Block { count: arm.values.len(), runs: arm.runs });
    let interval = bootstrap.interval(&blocks, |indices| {
        let (for_x, for_y) = indices.split_at(x.values.len());
        x.resample_into(for_x, &mut of_x);
        y.resample_into(for_y, &mut of_y);
        improvement_of(&of_x, &of_y)
    })?;
    Ok(Estimate { value, interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(rows: &[&[f64]]) -> Scores {
        Scores::new(rows).expect("the test's own table is whole")
    }

    #[test]
    fn tables_that_are_none_are_unfit() {
        assert_eq!(Scores::new::<Vec<f64>>(&[]), Err(Unfit::Empty));
        assert_eq!(Scores::new::<&[f64]>(&[&[], &[]]), Err(Unfit::Empty));
        assert_eq!(Scores::of_one_task(&[]), Err(Unfit::Empty));
        let ragged = Scores::new::<&[f64]>(&[&[1.0, 2.0], &[1.0]]);
        assert_eq!(ragged, Err(Unfit::Ragged { row: 1, columns: 1, expected: 2 }));
        let infinite = Scores::of_one_task(&[1.0, f64::INFINITY]);
        assert_eq!(infinite, Err(Unfit::OutOfRange { what: "a score", value: f64::INFINITY }));
        assert!(Scores::of_one_task(&[f64::NAN]).is_err());
    }

    #[test]
    fn a_quarter_is_left_out_at_either_end_rounded_down() {
        assert_eq!(iqm(vec![9.0]), 9.0);
        assert_eq!(iqm(vec![100.0, 1.0, 2.0]), 103.0 / 3.0);
        assert_eq!(iqm(vec![100.0, 1.0, 2.0, -50.0]), 1.5);
        assert_eq!(iqm(vec![5.0, 4.0, 3.0, 2.0, 1.0]), 3.0);
    }

    #[test]
    fn the_median_is_over_tasks_not_over_runs() {
        let scores = scores(&[&[0.0, 10.0, 2.0], &[1.0, 0.0, 4.0]]);
        assert_eq!(Aggregate::Median.of(&scores), 3.0);
    }

    #[test]
    fn the_gap_does_not_count_what_is_above_the_threshold() {
        let scores = scores(&[&[0.5, 3.0]]);
        assert_eq!(Aggregate::OptimalityGap { gamma: 1.0 }.of(&scores), 0.25);
    }

    #[test]
    fn an_arm_is_no_improvement_on_itself() {
        let same = scores(&[&[1.0, 2.0], &[1.0, 3.0], &[0.0, 3.0]]);
        assert_eq!(probability_of_improvement(&same, &same), Ok(0.5));
        let narrow = scores(&[&[1.0]]);
        assert_eq!(probability_of_improvement(&same, &narrow), Err(Unfit::Unpaired { left: 2, right: 1 }));
    }

    #[test]
    fn one_run_has_an_interval_without_width() {
        let one = scores(&[&[0.25, 0.75]]);
        let estimate = aggregate(&Bootstrap::seeded(1, 10), &one, Aggregate::Mean);
        assert!(estimate.is_ok_and(|e| e.value == 0.5 && e.interval.low == 0.5 && e.interval.high == 0.5));
    }
}
