//! Sensitivity of tuned settings: the share of the variance between trials that each one explains.
//!
//! Trials are compared by rank in the first rung, which has all of them: a rank transformation orders costs
//! and accuracies together (Saltelli et al. 2008). The share of a number is that of a parabola over its
//! range, adjusted for noise; that of a word is that of its groups' means. Trials are drawn as a Latin
//! hypercube, so settings are nearly independent of each other.

use serde_json::Value;

use crate::tuning::{Measure, TunedArm, ranked};

/// Minimum number of trials for an estimate.
const FEWEST: usize = 8;

/// Returns the share of the variance that each setting explains, in the order of the ranges; `None` with
/// too few trials, or if a setting was not varied.
pub fn shares(arm: &TunedArm) -> Vec<Option<f64>> {
    let first = |i: usize| arm.trials[i].rungs.first().copied().map(|measure: Measure| (i as u32, measure));
    let rung: Vec<(u32, Measure)> = (0..arm.trials.len()).filter_map(first).collect();
    let places: Vec<(usize, f64)> =
        ranked(&rung).into_iter().map(|i| i as usize).zip((0..).map(f64::from)).collect();
    (0..arm.ranges.len()).map(|key| share(arm, key, &places)).collect()
}

fn share(arm: &TunedArm, key: usize, places: &[(usize, f64)]) -> Option<f64> {
    let values: Vec<(&Value, f64)> = places
        .iter()
        .map(|(i, place)| (&arm.trials[*i].values[key], *place))
        .filter(|(v, _)| !v.is_null())
        .collect();
    if values.len() < FEWEST {
        return None;
    }
    let numbers: Option<Vec<f64>> =
        values.iter().map(|(value, _)| value.as_f64().and_then(|x| arm.ranges[key].place(x))).collect();
    let ys: Vec<f64> = values.iter().map(|(_, y)| *y).collect();
    let (fitted, freedom) = match numbers {
        Some(xs) => parabola(&xs, &ys)?,
        None => groups(&values)?,
    };
    let n = ys.len() as f64;
    let mean = ys.iter().sum::<f64>() / n;
    let whole: f64 = ys.iter().map(|y| (y - mean).powi(2)).sum();
    let left: f64 = ys.iter().zip(&fitted).map(|(y, f)| (y - f).powi(2)).sum();
    if whole <= 0.0 || n - 1.0 - freedom <= 0.0 {
        return None;
    }
    Some((1.0 - left / whole * (n - 1.0) / (n - 1.0 - freedom)).max(0.0))
}

/// Returns the means of equal values, and the degrees of freedom besides the overall mean.
fn groups(values: &[(&Value, f64)]) -> Option<(Vec<f64>, f64)> {
    let mean = |value: &Value| {
        let same = || values.iter().filter(|(other, _)| *other == value).map(|(_, y)| *y);
        same().sum::<f64>() / same().count() as f64
    };
    let mut kinds: Vec<&Value> = Vec::new();
    for (value, _) in values {
        if !kinds.contains(value) {
            kinds.push(value);
        }
    }
    (kinds.len() > 1)
        .then(|| (values.iter().map(|(value, _)| mean(value)).collect(), kinds.len() as f64 - 1.0))
}

/// Fits a least-squares parabola, or a line if there are only two places, and returns the degrees of
/// freedom. The columns are made orthogonal one by one.
fn parabola(xs: &[f64], ys: &[f64]) -> Option<(Vec<f64>, f64)> {
    let n = xs.len() as f64;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mean = ys.iter().sum::<f64>() / n;
    let mut fitted = vec![mean; xs.len()];
    let mut columns: Vec<Vec<f64>> = vec![vec![1.0; xs.len()]];
    for power in 1..=2 {
        let mut column: Vec<f64> = xs.iter().map(|x| x.powi(power)).collect();
        for before in &columns {
            let part = dot(&column, before) / dot(before, before);
            column.iter_mut().zip(before).for_each(|(c, b)| *c -= part * b);
        }
        if dot(&column, &column) < 1e-9 {
            break;
        }
        let part = dot(&column, ys) / dot(&column, &column);
        fitted.iter_mut().zip(&column).for_each(|(f, c)| *f += part * c);
        columns.push(column);
    }
    (columns.len() > 1).then_some((fitted, columns.len() as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;
    use crate::tuning::{Trial, Tuned};

    #[test]
    fn what_decides_has_the_share_and_what_does_not_has_none() {
        let trial = |i: u32| {
            let (x, z) = (f64::from(i) / 15.0, f64::from((i * 7) % 16) / 15.0);
            let accuracy = Some(0.5 - (x - 0.4).powi(2));
            let measure = Measure { runs: 1, accuracy, ..Measure::default() };
            let word = if i.is_multiple_of(2) { "even" } else { "odd" };
            Trial {
                number: i,
                values: vec![x.into(), z.into(), word.into(), 3.into()],
                rungs: vec![measure],
                costs: Costs::default(),
                failed: None,
            }
        };
        let tuned = |key: &str, high| Tuned { key: key.to_owned(), low: Some(0.0), high, log: false };
        let arm = TunedArm {
            name: "one".to_owned(),
            ranges: ["x", "z", "w", "c"].map(|key| tuned(key, Some(1.0))).to_vec(),
            trials: (0..16).map(trial).collect(),
            best: 0,
        };
        let shares = shares(&arm);
        assert!(shares[0].expect("it varies") > 0.8, "{shares:?}");
        assert!(shares[1].expect("it varies") < 0.3 && shares[2].expect("it varies") < 0.2, "{shares:?}");
        assert_eq!(shares[3], None, "what is always the same has no share");
    }
}
