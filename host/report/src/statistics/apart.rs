//! Differences between two arms whose runs are not paired: Welch's t-test.

use super::{Difference, Interval, TTest, Unfit, finite, level_within, mean, student};

/// Compares two arms as two samples (Welch 1947, "The generalization of Student's problem when several different population
/// variances are involved").
///
/// As `scipy.stats.ttest_ind(arm, baseline, equal_var=False)`, with its interval at a level of confidence. In the result, `pairs` is
/// the number of runs of the smaller arm, `deviation` the square root of the sum of both variances, that of the difference of two
/// runs, and the effect is the mean difference over the root of the mean variance (Cohen's d). Numbers that are equal within each
/// arm, to 1e-12 of the largest, have no test.
pub fn apart(level: f64, arm: &[f64], baseline: &[f64]) -> Result<Difference, Unfit> {
    level_within("a level of confidence", level)?;
    if arm.is_empty() || baseline.is_empty() {
        return Err(Unfit::Empty);
    }
    finite("a value to compare", arm)?;
    finite("a value to compare", baseline)?;
    let pairs = arm.len().min(baseline.len());
    let [ours, theirs] = [arm, baseline].map(|values| mean(values.iter().copied()));
    let mean = ours - theirs;
    if pairs < 2 {
        return Ok(Difference { pairs, mean, deviation: None, test: None });
    }
    let largest = arm.iter().chain(baseline).fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let equal = |values: &[f64], mean: f64| values.iter().all(|v| (v - mean).abs() <= 1e-12 * largest);
    if equal(arm, ours) && equal(baseline, theirs) {
        return Ok(Difference { pairs, mean, deviation: Some(0.0), test: None });
    }
    let variance = |values: &[f64], mean: f64| {
        values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (values.len() - 1) as f64
    };
    let variances = [variance(arm, ours), variance(baseline, theirs)];
    let shares = [variances[0] / arm.len() as f64, variances[1] / baseline.len() as f64];
    let error = (shares[0] + shares[1]).sqrt();
    // Welch and Satterthwaite's degrees of freedom.
    let freedom = (shares[0] + shares[1]).powi(2)
        / (shares[0].powi(2) / (arm.len() - 1) as f64 + shares[1].powi(2) / (baseline.len() - 1) as f64);
    let half = student::critical(1.0 - level, freedom) * error;
    let t = mean / error;
    let deviation = (variances[0] + variances[1]).sqrt();
    let test = TTest {
        t,
        p_value: student::two_sided(t, freedom),
        interval: Interval { low: mean - half, high: mean + half },
        effect: mean / (deviation / std::f64::consts::SQRT_2),
    };
    Ok(Difference { pairs, mean, deviation: Some(deviation), test: Some(test) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Random;

    #[test]
    fn one_run_has_a_difference_and_no_test() {
        let one = apart(0.95, &[3.0], &[1.0, 2.0]);
        assert_eq!(one, Ok(Difference { pairs: 1, mean: 1.5, deviation: None, test: None }));
    }

    #[test]
    fn arms_without_spread_have_no_test_and_one_with_it_has() {
        let same = apart(0.95, &[0.3; 3], &[0.1 + 0.2; 2]).expect("numbers");
        assert_eq!((same.pairs, same.deviation, same.test), (2, Some(0.0), None));
        let one =
            apart(0.95, &[0.3; 3], &[0.1, 0.2]).expect("numbers").test.expect("the baseline has a spread");
        // All of the error is the baseline's, so it has one degree of freedom: t of Cauchy's distribution.
        assert!((one.p_value - (1.0 - 2.0 * one.t.atan() / std::f64::consts::PI)).abs() < 1e-12, "{one:?}");
    }

    #[test]
    fn what_is_no_sample_is_unfit() {
        assert_eq!(apart(0.95, &[], &[1.0]), Err(Unfit::Empty));
        assert_eq!(apart(0.95, &[1.0], &[]), Err(Unfit::Empty));
        assert!(apart(0.95, &[f64::NAN], &[1.0]).is_err() && apart(1.5, &[1.0], &[1.0]).is_err());
    }

    #[test]
    fn its_intervals_hold_what_they_should_with_unequal_arms() {
        let mut random = Random::new(5);
        let mut normal = || {
            let [u, v] =
                [random.bits(), random.bits()].map(|bits| ((bits >> 11) as f64 + 0.5) / 2f64.powi(53));
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let mut missed = 0;
        for _ in 0..4000 {
            let arm: Vec<f64> = (0..4).map(|_| 1.0 + 3.0 * normal()).collect();
            let baseline: Vec<f64> = (0..9).map(|_| normal()).collect();
            let test = apart(0.95, &arm, &baseline).expect("numbers").test.expect("a spread");
            missed += u32::from(!(test.interval.low..=test.interval.high).contains(&1.0));
        }
        // 5 of a hundred, and four standard errors; Welch's approximation errs by less with four runs.
        assert!((145..=255).contains(&missed), "{missed} of 4000 intervals do not hold the difference");
    }
}
