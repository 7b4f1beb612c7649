//! Quantiles and tails of Student's t and of the normal distribution, without the panics and rounding
//! errors of statrs' own inverses. The tail of t is an incomplete beta function; its quantile is found by
//! bisection.

use statrs::function::{beta::checked_beta_reg, erf::erfc_inv};

/// Returns the probability that Student's t with `freedom` degrees of freedom (above 0) is further from 0
/// than `t`, on either side.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    let share = freedom / (freedom + t * t);
    checked_beta_reg(freedom / 2.0, 0.5, share).map_or(f64::NAN, |p| p.clamp(0.0, 1.0))
}

/// Returns the two-sided critical value of Student's t: it is further from 0 with probability `alpha`,
/// which is above 0 and below 1.
pub(super) fn critical(alpha: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > alpha && high < 1e150 {
        (low, high) = (high, high * 2.0);
    }
    // 60 bisections of an interval no longer than its upper end exhaust the precision of a double.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The two-sided critical value of the normal distribution.
pub(super) fn normal_critical(alpha: f64) -> f64 {
    std::f64::consts::SQRT_2 * erfc_inv(alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy 1.17.1, `stats.t.isf(alpha / 2, freedom)`.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (alpha, freedom, expected) in [
            (0.05, 1.0, 12.706_204_736_174_705),
            (0.05, 9.0, 2.262_157_162_798_205_3),
            (0.05, 999.0, 1.962_341_461_133_449_8),
            (0.001, 2.0, 31.599_054_576_443_62),
            (1e-6, 4.0, 49.458_636_756_934_64),
            (0.9, 3.0, 0.136_598_199_353_698_9),
        ] {
            let found = critical(alpha, freedom);
            assert!((found / expected - 1.0).abs() < 1e-9, "{alpha} {freedom}: {found}");
        }
        assert!((normal_critical(0.05) - 1.959_963_984_540_054).abs() < 1e-12);
    }

    #[test]
    fn tails_end_where_they_should() {
        assert_eq!(two_sided(0.0, 5.0), 1.0);
        assert_eq!(two_sided(f64::INFINITY, 5.0), 0.0);
        assert!(two_sided(f64::NAN, 5.0).is_nan());
    }
}
