//! Number of seeds needed: the exact power of the paired t-test, by the noncentral t distribution.

use std::f64::consts::TAU;

use serde::Serialize;
use statrs::function::gamma::checked_gamma_lr;

use super::{Unfit, level_within, student, within};

/// The power that is required.
pub const POWER: f64 = 0.8;

/// Maximum number of seeds considered.
pub const MOST_SEEDS: u32 = 1000;

/// Number of paired seeds that would detect a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needed {
    /// This many, at least 2.
    Seeds(u32),
    /// More than [`MOST_SEEDS`]; always so if there is no difference.
    MoreThan(u32),
}

/// Returns the number of paired seeds that detect this mean difference, given their standard deviation in
/// the same unit, with probability [`POWER`]. The test is a two-sided t-test at significance `alpha`,
/// already divided by the number of comparisons. As statsmodels' `TTestPower().solve_power`, rounded up.
///
/// The observed effect is itself uncertain, and this number even more: it is an order of magnitude.
pub fn seeds_needed(difference: f64, deviation: f64, alpha: f64) -> Result<Needed, Unfit> {
    within("a difference", difference, difference.is_finite())?;
    within("a deviation", deviation, deviation.is_finite() && deviation >= 0.0)?;
    level_within("a significance", alpha)?;
    if difference == 0.0 {
        return Ok(Needed::MoreThan(MOST_SEEDS));
    }
    let enough = |seeds| of_test(difference / deviation, seeds, alpha) >= POWER;
    if !enough(MOST_SEEDS) {
        return Ok(Needed::MoreThan(MOST_SEEDS));
    }
    // Power grows with seeds: `few` is never enough, and `many` always is.
    let (mut few, mut many) = (1, MOST_SEEDS);
    while many - few > 1 {
        let middle = u32::midpoint(few, many);
        if enough(middle) {
            many = middle;
        } else {
            few = middle;
        }
    }
    Ok(Needed::Seeds(many))
}

/// Returns the probability that a two-sided paired t-test at significance `alpha` detects an effect (mean
/// difference over their standard deviation) with this many pairs. As statsmodels' `TTestPower().power`.
///
/// With one pair it is 0.
pub fn power(effect: f64, pairs: u32, alpha: f64) -> Result<f64, Unfit> {
    within("an effect", effect, !effect.is_nan())?;
    level_within("a significance", alpha)?;
    Ok(of_test(effect, pairs, alpha))
}

/// The power for arguments in their range.
///
/// T = (Z + δ) / sqrt(V / ν) is beyond the critical value c if V < ν (Z + δ)² / c². With u = |Z + δ|, the
/// power is the integral over u > 0 of (φ(u - δ) + φ(u + δ)) P(V < ν u² / c²), where φ is the normal
/// density and V has the χ² distribution of ν = pairs - 1 degrees of freedom. Integrated by Simpson's rule
/// over all u where φ is above 1e-18.
fn of_test(effect: f64, pairs: u32, alpha: f64) -> f64 {
    const PARTS: u32 = 4000;
    if pairs < 2 {
        return 0.0;
    }
    let shift = effect.abs() * f64::from(pairs).sqrt();
    if shift.is_infinite() {
        return 1.0;
    }
    let freedom = f64::from(pairs - 1);
    let critical = student::critical(alpha, freedom);
    let density = |z: f64| (-0.5 * z * z).exp() / TAU.sqrt();
    let at = |u: f64| {
        let share = checked_gamma_lr(freedom / 2.0, freedom / 2.0 * (u / critical).powi(2)).unwrap_or(0.0);
        (density(u - shift) + density(u + shift)) * share
    };
    let (from, to) = ((shift - 9.0).max(0.0), shift + 9.0);
    let width = (to - from) / f64::from(PARTS);
    let weighted = |part: u32| {
        let weight = if part == 0 || part == PARTS { 1.0 } else { f64::from(2 + 2 * (part % 2)) };
        weight * at(from + width * f64::from(part))
    };
    ((0..=PARTS).map(weighted).sum::<f64>() * width / 3.0).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_effect_power_is_the_significance() {
        for (pairs, alpha) in [(2, 0.05), (3, 0.01), (10, 0.05), (1000, 0.001)] {
            let power = power(0.0, pairs, alpha).expect("all is in range");
            assert!((power - alpha).abs() < 1e-8, "{pairs} {alpha}: {power}");
        }
    }

    #[test]
    fn the_ends_are_told() {
        assert_eq!(seeds_needed(0.0, 1.0, 0.05), Ok(Needed::MoreThan(1000)));
        assert_eq!(seeds_needed(0.0, 0.0, 0.05), Ok(Needed::MoreThan(1000)));
        assert_eq!(seeds_needed(0.01, 1.0, 0.05), Ok(Needed::MoreThan(1000)));
        assert_eq!(seeds_needed(-1.0, 0.0, 0.05), Ok(Needed::Seeds(2)));
        assert_eq!(seeds_needed(1e9, 1.0, 0.05), Ok(Needed::Seeds(2)));
        assert_eq!(power(1.0, 0, 0.05), Ok(0.0));
        assert_eq!(power(1.0, 1, 0.05), Ok(0.0));
        assert_eq!(power(f64::INFINITY, 2, 0.05), Ok(1.0));
    }

    #[test]
    fn power_is_a_probability_at_any_extreme() {
        for effect in [1e-300, 1e-3, 1.0, 1e3, 1e300] {
            for alpha in [1e-300, 1e-9, 0.5, 1.0 - 1e-16] {
                for pairs in [2, 3, 1000, u32::MAX] {
                    let power = power(effect, pairs, alpha);
                    assert!(power.is_ok_and(|p| (0.0..=1.0).contains(&p)), "{effect} {alpha} {pairs}");
                }
            }
        }
        assert_eq!(seeds_needed(1e300, 1e-300, 1e-300), Ok(Needed::Seeds(2)));
    }

    #[test]
    fn what_is_out_of_range_is_unfit() {
        assert!(seeds_needed(f64::NAN, 1.0, 0.05).is_err());
        assert!(seeds_needed(1.0, -1.0, 0.05).is_err());
        assert!(seeds_needed(1.0, 1.0, 0.0).is_err());
        assert!(power(f64::NAN, 3, 0.05).is_err());
        assert!(power(1.0, 3, 1.0).is_err());
    }
}
