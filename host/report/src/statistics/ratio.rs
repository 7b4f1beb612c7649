//! Ratio of two arms' costs, over the same seeds or of unpaired runs, if all of them reached the target.

use serde::Serialize;

use super::{Difference, Estimate, Interval, Unfit, apart, difference, paired_up, within};

/// The ratio of two arms' costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Geometric mean over seeds of the baseline's cost divided by the arm's: above 1 if the arm is
    /// cheaper. It is also the ratio of the two arms' geometric means.
    pub value: f64,
    /// Its interval; `None` for one pair, and if all ratios are equal.
    pub interval: Option<Interval>,
    /// Two-sided p-value: the probability of a ratio at least this far from 1 if costs do not differ. It is
    /// below 1 − level exactly if the interval excludes 1.
    pub p_value: Option<f64>,
    /// The differences of logarithms, baseline minus arm, from which it was computed.
    pub logs: Difference,
}

/// Returns the ratio of paired costs above 0, by Student's paired t on their logarithms, as for geometric
/// means in bioequivalence (FDA 2001, "Statistical approaches to establishing bioequivalence"). Swapping
/// the arms inverts the ratio and its interval; a mean of ratios would not have this property.
pub fn ratio(level: f64, arm: &[f64], baseline: &[f64]) -> Result<Ratio, Unfit> {
    paired_up("a cost", arm, baseline)?;
    Ok(Ratio::of(difference(level, &logarithms(baseline)?, &logarithms(arm)?)?))
}

/// Returns the ratio of costs above 0 of runs that are not paired, by Welch's t on their logarithms.
pub fn ratio_apart(level: f64, arm: &[f64], baseline: &[f64]) -> Result<Ratio, Unfit> {
    Ok(Ratio::of(apart(level, &logarithms(baseline)?, &logarithms(arm)?)?))
}

impl Ratio {
    fn of(logs: Difference) -> Self {
        let interval = logs.test.map(|t| Interval { low: t.interval.low.exp(), high: t.interval.high.exp() });
        Self { value: logs.mean.exp(), interval, p_value: logs.test.map(|t| t.p_value), logs }
    }
}

/// Returns the geometric mean of costs above 0, with Student's interval. For one cost, or equal costs, the
/// interval has no width, which says nothing about other runs.
pub fn geometric_mean(level: f64, costs: &[f64]) -> Result<Estimate, Unfit> {
    let logs = difference(level, &logarithms(costs)?, &vec![0.0; costs.len()])?;
    let value = logs.mean.exp();
    let none = Interval { low: value, high: value };
    let interval =
        logs.test.map_or(none, |t| Interval { low: t.interval.low.exp(), high: t.interval.high.exp() });
    Ok(Estimate { value, interval })
}

fn logarithms(costs: &[f64]) -> Result<Vec<f64>, Unfit> {
    costs.iter().map(|cost| Ok(within("a cost", *cost, cost.is_finite() && *cost > 0.0)?.ln())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_has_the_ratio_of_its_costs() {
        let one = ratio(0.95, &[35_800.0], &[49_900.0]).expect("one pair of costs");
        assert!((one.value - 1.393_854_748_603_352).abs() < 1e-12, "{one:?}");
        assert_eq!((one.interval, one.p_value), (None, None));
    }

    #[test]
    fn the_other_way_round_it_is_one_over_it() {
        let (a, b) = ([10.0, 80.0, 30.0], [20.0, 100.0, 90.0]);
        let there = ratio(0.95, &a, &b).expect("three pairs");
        let back = ratio(0.95, &b, &a).expect("three pairs");
        // The cube root of 2 · 1.25 · 3.
        assert!((there.value - 7.5_f64.cbrt()).abs() < 1e-12, "{there:?}");
        assert!((there.value * back.value - 1.0).abs() < 1e-12);
        let (there, back) = (there.interval.expect("three"), back.interval.expect("three"));
        assert!((there.low * back.high - 1.0).abs() < 1e-12 && (there.high * back.low - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_seeds_do_to_both_arms_falls_out() {
        let baseline = [10.0, 80.0, 30.0];
        let half = ratio(0.95, &baseline.map(|b| b / 2.0), &baseline).expect("three pairs");
        assert!((half.value - 2.0).abs() < 1e-12 && half.interval.is_none(), "{half:?}");
    }

    #[test]
    fn it_is_the_ratio_of_the_geometric_means() {
        let (a, b) = ([10.0, 80.0, 30.0], [20.0, 100.0, 90.0]);
        let [of_a, of_b] = [a, b].map(|costs| geometric_mean(0.95, &costs).expect("three costs"));
        let both = ratio(0.95, &a, &b).expect("three pairs");
        assert!((of_b.value / of_a.value - both.value).abs() < 1e-12);
        assert!(of_a.interval.low < of_a.value && of_a.value < of_a.interval.high);
        let one = geometric_mean(0.95, &[7.0]).expect("one cost");
        assert!((one.value - 7.0).abs() < 1e-12 && one.interval.low == one.value, "{one:?}");
    }

    #[test]
    fn costs_that_are_none_are_unfit() {
        assert_eq!(ratio(0.95, &[], &[]), Err(Unfit::Empty));
        assert_eq!(ratio(0.95, &[1.0], &[]), Err(Unfit::Unpaired { left: 1, right: 0 }));
        assert_eq!(geometric_mean(0.95, &[]), Err(Unfit::Empty));
        for cost in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ratio(0.95, &[1.0, cost], &[1.0, 2.0]).is_err(), "{cost}");
            assert!(geometric_mean(0.95, &[cost]).is_err(), "{cost}");
        }
    }
}
