//! Bounds on the ratio of two arms' costs, if some runs never reached the target.
//!
//! The order of a pair is known if its cheaper run reached the target, whatever the other would have cost.
//! So the sign test is exact for any number of seeds, on the pairs of known order (Holt and Prentice 1974,
//! "Survival analyses in twin studies and matched pair experiments"; Dixon and Mood 1946, "The statistical
//! sign test"). A factor is within the bounds if the test, on the arm's costs times that factor, does not
//! reject it (Thompson 1936, "On confidence ranges for the median").

use serde::Serialize;
use statrs::function::beta::checked_beta_reg;

use super::{Unfit, Wait, level_within, survival, within};

/// Bounds on the baseline's cost divided by the arm's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Number of pairs of known order.
    pub known: usize,
    /// Two-sided p-value of the sign test: the probability of at least this many pairs in one order if
    /// costs do not differ. 1 if no order is known.
    pub p_value: f64,
    /// Lower bound on the ratio; `None` if the pairs do not give one. That takes at least six pairs of
    /// known order, at a level of 0.95.
    pub low: Option<f64>,
    /// Upper bound on the ratio; `None` if the pairs do not give one.
    pub high: Option<f64>,
    /// The ratio of every pair in the data is at least this; `None` if a pair has no lower bound.
    pub least: Option<f64>,
    /// The ratio of every pair in the data is at most this; `None` if a pair has no upper bound.
    pub most: Option<f64>,
}

/// Bounds the ratio at a level of confidence, from paired costs above 0.
///
/// The model is that costs differ by a factor: within a pair, the baseline's cost and the arm's times the
/// factor are exchangeable. Both runs of a pair must have been observed up to the same cost. A
/// [`Wait::Longer`] paired with a [`Wait::Reached`] beyond it does not satisfy this: cut both at the
/// smaller one.
pub fn bound(level: f64, arm: &[Wait], baseline: &[Wait]) -> Result<Bound, Unfit> {
    let outside = (1.0 - level_within("a level of confidence", level)?) / 2.0;
    if arm.len() != baseline.len() {
        return Err(Unfit::Unpaired { left: arm.len(), right: baseline.len() });
    }
    for wait in survival::checked(arm)?.iter().chain(survival::checked(baseline)?) {
        within("a cost", wait.time(), wait.time() > 0.0)?;
    }
    let pairs: Vec<Pair> = arm.iter().zip(baseline).map(|(a, b)| Pair::of(*a, *b)).collect();
    let fewer = pairs.iter().filter(|pair| pair.above(1.0)).count();
    let more = pairs.iter().filter(|pair| pair.below(1.0)).count();
    let one_sided = at_least(fewer + more, fewer).min(at_least(fewer + more, more));
    // The test changes only at the pairs' ratios, and rejects all factors beyond a rejected one.
    let ends = || pairs.iter().flat_map(|pair| [pair.low, pair.high]).flatten();
    let refused_up_to = |end: &f64| {
        let above = pairs.iter().filter(|p| p.low.is_some_and(|low| low >= *end)).count();
        let below = pairs.iter().filter(|p| p.high.is_some_and(|high| high < *end)).count();
        at_least(above + below, above) <= outside
    };
    let refused_from = |end: &f64| {
        let above = pairs.iter().filter(|p| p.low.is_some_and(|low| low > *end)).count();
        let below = pairs.iter().filter(|p| p.high.is_some_and(|high| high <= *end)).count();
        at_least(above + below, below) <= outside
    };
    let lows: Option<Vec<f64>> = pairs.iter().map(|pair| pair.low).collect();
    let highs: Option<Vec<f64>> = pairs.iter().map(|pair| pair.high).collect();
    Ok(Bound {
        known: fewer + more,
        p_value: (2.0 * one_sided).min(1.0),
        low: ends().filter(refused_up_to).reduce(f64::max),
        high: ends().filter(refused_from).reduce(f64::min),
        least: lows.and_then(|lows| lows.into_iter().reduce(f64::min)),
        most: highs.and_then(|highs| highs.into_iter().reduce(f64::max)),
    })
}

/// Bounds from one pair on its ratio, the baseline's cost over the arm's.
#[derive(Clone, Copy)]
struct Pair {
    /// Lower bound, which is exclusive if the pair is open.
    low: Option<f64>,
    /// Upper bound, which is exclusive if the pair is open.
    high: Option<f64>,
    /// Whether one of the two runs did not reach the target.
    open: bool,
}

impl Pair {
    fn of(arm: Wait, baseline: Wait) -> Self {
        let ratio = Some(baseline.time() / arm.time());
        match (arm, baseline) {
            (Wait::Reached(_), Wait::Reached(_)) => Self { low: ratio, high: ratio, open: false },
            (Wait::Reached(a), Wait::Longer(b)) if a <= b => Self { low: ratio, high: None, open: true },
            (Wait::Longer(a), Wait::Reached(b)) if b <= a => Self { low: None, high: ratio, open: true },
            _ => Self { low: None, high: None, open: true },
        }
    }

    fn above(self, factor: f64) -> bool {
        self.low.is_some_and(|low| if self.open { low >= factor } else { low > factor })
    }

    fn below(self, factor: f64) -> bool {
        self.high.is_some_and(|high| if self.open { high <= factor } else { high < factor })
    }
}

/// Returns the probability of at least `heads` heads among `coins` fair coins.
fn at_least(coins: usize, heads: usize) -> f64 {
    if heads == 0 {
        return 1.0;
    }
    checked_beta_reg(heads as f64, (coins - heads) as f64 + 1.0, 0.5).map_or(f64::NAN, |p| p.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Random;

    fn reached(costs: &[f64]) -> Vec<Wait> {
        costs.iter().copied().map(Wait::Reached).collect()
    }

    #[test]
    fn seven_pairs_in_one_order_bound_the_ratio_by_hand() {
        // The baseline never gets there within 60; three pairs do not tell their order. 7 of 7 coins are
        // 1/128 on a side, 6 of 6 are 1/64, 5 of 5 are 1/32: above 0.025. So the second smallest of 60 / cost,
        // with six pairs at or above it, is the last that is refused.
        let mut arm = reached(&[20.0, 24.0, 30.0, 40.0, 48.0, 50.0, 55.0]);
        arm.extend([Wait::Longer(60.0); 3]);
        let found = bound(0.95, &arm, &[Wait::Longer(60.0); 10]).expect("ten pairs");
        assert_eq!(found.known, 7);
        assert!((found.p_value - 2.0 / 128.0).abs() < 1e-12, "{found:?}");
        assert_eq!((found.low, found.high), (Some(60.0 / 50.0), None));
        // Three pairs of them say nothing at all.
        assert_eq!((found.least, found.most), (None, None));
        let back = bound(0.95, &[Wait::Longer(60.0); 10], &arm).expect("ten pairs");
        assert_eq!((back.low, back.high, back.p_value), (None, Some(50.0 / 60.0), found.p_value));
    }

    #[test]
    fn where_all_got_there_it_is_the_sign_test_of_the_median_ratio() {
        // 10 pairs: 1 of 10 coins or fewer are 11/1024 on a side, 2 or fewer are 56/1024. So the interval runs
        // from the second to the ninth ratio.
        let arm = reached(&[1.0; 10]);
        let ratios: Vec<f64> = (1..=10).map(|i| 1.0 + f64::from(i) / 10.0).collect();
        let found = bound(0.95, &arm, &reached(&ratios)).expect("ten pairs");
        assert_eq!((found.low, found.high), (Some(1.2), Some(1.9)));
        assert_eq!((found.least, found.most), (Some(1.1), Some(2.0)));
        assert!((found.p_value - 2.0 / 1024.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn few_pairs_bound_what_was_seen_and_no_more() {
        let found = bound(0.95, &[Wait::Longer(60.0); 3], &reached(&[40.0, 30.0, 50.0])).expect("three");
        assert_eq!((found.known, found.low, found.high), (3, None, None));
        assert!((found.p_value - 0.25).abs() < 1e-12, "{found:?}");
        assert_eq!((found.least, found.most), (None, Some(50.0 / 60.0)));
        let nobody = bound(0.95, &[Wait::Longer(60.0); 8], &[Wait::Longer(60.0); 8]).expect("eight pairs");
        assert_eq!((nobody.known, nobody.p_value, nobody.low, nobody.least), (0, 1.0, None, None));
    }

    #[test]
    fn equal_costs_are_no_order_and_an_end_at_the_limit_is_one() {
        let same = bound(0.95, &reached(&[5.0; 8]), &reached(&[5.0; 8])).expect("eight pairs");
        assert_eq!((same.known, same.low, same.high), (0, Some(1.0), Some(1.0)));
        // It got there with the last rollout that the other had without getting there.
        let last = bound(0.95, &reached(&[60.0; 6]), &[Wait::Longer(60.0); 6]).expect("six pairs");
        assert_eq!((last.known, last.low), (6, Some(1.0)));
        // Beyond where the other was looked at, the order is not known.
        let beyond = bound(0.95, &reached(&[70.0; 6]), &[Wait::Longer(60.0); 6]).expect("six pairs");
        assert_eq!((beyond.known, beyond.low, beyond.high), (0, None, None));
    }

    #[test]
    fn bounds_hold_what_they_should_however_much_is_cut_off() {
        // Log-normal costs, half of their spread shared by a pair, the arm's 1.5 times cheaper; budgets that
        // cut off a few of the runs, half of them, and most.
        let mut random = Random::new(3);
        let mut normal = || {
            let [u, v] =
                [random.bits(), random.bits()].map(|bits| ((bits >> 11) as f64 + 0.5) / 2f64.powi(53));
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        for budget in [1.6, 1.0, 0.7] {
            let (mut missed, mut told) = (0, 0);
            for _ in 0..2000 {
                let (mut arm, mut baseline) = (Vec::new(), Vec::new());
                for _ in 0..10 {
                    let both = 0.2 * normal();
                    let mut wait = |middle: f64| {
                        let cost = middle * (both + 0.2 * normal()).exp();
                        if cost <= budget { Wait::Reached(cost) } else { Wait::Longer(budget) }
                    };
                    arm.push(wait(1.0 / 1.5));
                    baseline.push(wait(1.0));
                }
                let found = bound(0.95, &arm, &baseline).expect("ten pairs");
                missed +=
                    u32::from(found.low.is_some_and(|l| l > 1.5) || found.high.is_some_and(|h| h < 1.5));
                told += u32::from(found.low.is_some());
            }
            // At most 5 of a hundred, and four standard errors of 2000 draws.
            assert!(missed <= 139, "{missed} of 2000 bounds at a budget of {budget} do not hold 1.5");
            assert!(told > 500, "{told} of 2000 tell a bound at a budget of {budget}");
        }
    }

    #[test]
    fn waits_that_are_none_are_unfit() {
        assert_eq!(bound(0.95, &[], &[]), Err(Unfit::Empty));
        let one = [Wait::Reached(1.0)];
        assert!(bound(0.95, &one, &[]).is_err() && bound(1.0, &one, &one).is_err());
        assert!(bound(0.95, &one, &[Wait::Longer(0.0)]).is_err());
        assert!(bound(0.95, &[Wait::Reached(f64::NAN)], &one).is_err());
    }
}
