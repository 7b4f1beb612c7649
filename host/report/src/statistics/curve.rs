//! Bands around curves: an aggregate over runs at each point, with its bootstrap interval.

use serde::Serialize;

use super::resample::Block;
use super::scores::iqm;
use super::{Aggregate, Bootstrap, Scores, Unfit, mean};

/// A curve with its band; each list has one number per point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Lower ends of the intervals.
    pub low: Vec<f64>,
    /// The curve.
    pub middle: Vec<f64>,
    /// Upper ends of the intervals.
    pub high: Vec<f64>,
}

/// Returns the band of curves, runs × points: at each point the aggregate over runs, with its interval.
///
/// The band is pointwise: each interval has the level by itself, and all of them together have less. Whole
/// runs are resampled (arch, `IIDBootstrap`), while rliable resamples runs at each point. The distribution
/// at each point is the same, with fewer random numbers. At a point there is one task, so a median over
/// tasks is the mean.
///
/// Given indices: one for each run.
pub fn band(bootstrap: &Bootstrap, curves: &Scores, aggregate: Aggregate) -> Result<Band, Unfit> {
    let points: Vec<Vec<f64>> = (0..curves.columns()).map(|point| curves.column(point).collect()).collect();
    let mut resample = vec![0.0; curves.runs()];
    let block = Block { count: curves.runs(), runs: curves.runs() };
    let intervals = bootstrap.intervals(&[block], points.len(), |indices, out| {
        for (point, out) in points.iter().zip(out) {
            for (value, run) in resample.iter_mut().zip(indices) {
                *value = point[*run as usize];
            }
            *out = at_point(aggregate, &resample);
        }
    })?;
    Ok(Band {
        low: intervals.iter().map(|interval| interval.low).collect(),
        middle: points.iter().map(|runs| at_point(aggregate, runs)).collect(),
        high: intervals.iter().map(|interval| interval.high).collect(),
    })
}

/// Returns the aggregate of the runs' values at one point.
fn at_point(aggregate: Aggregate, runs: &[f64]) -> f64 {
    match aggregate {
        Aggregate::Mean | Aggregate::Median => mean(runs.iter().copied()),
        Aggregate::Iqm => iqm(runs.to_vec()),
        Aggregate::OptimalityGap { gamma } => gamma - mean(runs.iter().map(|score| score.min(gamma))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_share_their_runs() {
        let curves =
            Scores::new(&[[0.0, 10.0, 5.0], [1.0, 20.0, 5.0]]).expect("the test's own table is whole");
        let given = [vec![0, 0], vec![1, 1]];
        let bootstrap = Bootstrap { level: 0.5, draws: super::super::Draws::Given(&given) };
        for aggregate in [Aggregate::Mean, Aggregate::Median, Aggregate::Iqm] {
            let band = band(&bootstrap, &curves, aggregate).expect("two resamples fit two runs");
            assert_eq!(band.low, [0.25, 12.5, 5.0]);
            assert_eq!(band.middle, [0.5, 15.0, 5.0]);
            assert_eq!(band.high, [0.75, 17.5, 5.0]);
        }
    }
}
