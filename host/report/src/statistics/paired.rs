//! Differences between two arms over the same seeds: Student's paired t-test, the sign-flip test, and
//! Holm's correction for many comparisons.

use serde::Serialize;

use super::{Interval, Random, Unfit, finite, level_within, mean, paired_up, student, within};

/// A difference, arm minus baseline, in the arms' unit. This is of pairs; [`apart`](super::apart()) says what it is without them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Number of pairs.
    pub pairs: usize,
    /// The mean difference.
    pub mean: f64,
    /// Standard deviation of the differences, with divisor n − 1; `None` for one pair.
    pub deviation: Option<f64>,
    /// Student's t-test. `None` for one pair, and if all differences are equal: scipy then returns p = 0 or
    /// NaN, which is a division by 0 and not evidence.
    pub test: Option<TTest>,
}

/// Student's t-test on paired differences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TTest {
    /// Mean over its standard error.
    pub t: f64,
    /// Two-sided p-value: the probability of a t at least this far from 0 if the arms do not differ.
    pub p_value: f64,
    /// Interval of the mean difference, in the arms' unit.
    pub interval: Interval,
    /// Cohen's d for pairs: the mean over the standard deviation of the differences.
    pub effect: f64,
}

/// Compares two arms, which have a number for each of the same seeds, in order.
///
/// As `scipy.stats.ttest_rel(arm, baseline)`, with its interval at a level of confidence. Differences that
/// are equal to within 1e-12 of the numbers, the size of rounding errors, count as equal.
pub fn difference(level: f64, arm: &[f64], baseline: &[f64]) -> Result<Difference, Unfit> {
    level_within("a level of confidence", level)?;
    paired_up("a value to compare", arm, baseline)?;
    let differences: Vec<f64> = arm.iter().zip(baseline).map(|(a, b)| a - b).collect();
    let pairs = differences.len();
    let mean = mean(differences.iter().copied());
    if pairs < 2 {
        return Ok(Difference { pairs, mean, deviation: None, test: None });
    }
    let largest = arm.iter().chain(baseline).fold(0.0_f64, |largest, value| largest.max(value.abs()));
    if differences.iter().all(|d| (d - mean).abs() <= 1e-12 * largest) {
        return Ok(Difference { pairs, mean, deviation: Some(0.0), test: None });
    }
    let freedom = (pairs - 1) as f64;
    let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
    let deviation = (squares / freedom).sqrt();
    let error = deviation / (pairs as f64).sqrt();
    let half = student::critical(1.0 - level, freedom) * error;
    let t = mean / error;
    let test = TTest {
        t,
        p_value: student::two_sided(t, freedom),
        interval: Interval { low: mean - half, high: mean + half },
        effect: mean / deviation,
    };
    Ok(Difference { pairs, mean, deviation: Some(deviation), test: Some(test) })
}

/// Result of the sign-flip test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SignFlip {
    /// Share of flips whose sum is at least as far from 0 as the observed sum.
    pub p_value: f64,
    /// Standard error of that share if flips were drawn; `None` if all were enumerated.
    pub standard_error: Option<f64>,
}

/// Number of flips to draw if there are too many to enumerate.
pub const FLIPS: u32 = 100_000;

/// The two-sided permutation test of paired differences: if the arms do not differ, each difference could
/// have the other sign (Fisher 1935, "The design of experiments", § 21; `scipy.stats.permutation_test` with
/// `permutation_type="samples"`).
///
/// Up to 16 pairs, all `2^n` flips are enumerated. Beyond that, [`FLIPS`] are drawn from the seed, and the
/// observed signs count, too (Phipson and Smyth 2010), so p is never 0. With 5 pairs, p is at least 1 / 16.
pub fn sign_flip(seed: u64, differences: &[f64]) -> Result<SignFlip, Unfit> {
    finite("a difference", differences)?;
    let n = differences.len();
    // Tolerance for sums that differ only by rounding.
    let slack = 1e-12 * differences.iter().map(|d| d.abs()).sum::<f64>();
    let least = differences.iter().sum::<f64>().abs() - slack;
    if n <= 16 {
        let flips = 1_u64 << n;
        let far = (0..flips).filter(|flip| flipped(differences, |i| flip >> i) >= least).count();
        return Ok(SignFlip { p_value: far as f64 / flips as f64, standard_error: None });
    }
    let mut random = Random::new(seed);
    let mut bits = vec![0_u64; n.div_ceil(64)];
    let mut far = 0_u32;
    for _ in 0..FLIPS {
        bits.fill_with(|| random.bits());
        far += u32::from(flipped(differences, |i| bits[i / 64] >> (i % 64)) >= least);
    }
    let p_value = f64::from(1 + far) / f64::from(1 + FLIPS);
    let standard_error = (p_value * (1.0 - p_value) / f64::from(FLIPS)).sqrt();
    Ok(SignFlip { p_value, standard_error: Some(standard_error) })
}

/// Returns the absolute sum of the differences, with those flipped whose bit is set.
fn flipped(differences: &[f64], bit: impl Fn(usize) -> u64) -> f64 {
    let signed = |(i, d): (usize, &f64)| if bit(i) & 1 == 1 { -d } else { *d };
    differences.iter().enumerate().map(signed).sum::<f64>().abs()
}

/// Returns the p-values of a family after Holm's correction, in the given order (Holm 1979, "A simple
/// sequentially rejective multiple test procedure"). If all those at or below alpha are called differences,
/// the probability that any of them is wrong is at most alpha. As statsmodels'
/// `multipletests(method="holm")`.
///
/// A comparison that could not be tested belongs to the family, too: pass 1 for it.
pub fn holm(p_values: &[f64]) -> Result<Vec<f64>, Unfit> {
    for p in p_values {
        within("a p-value", *p, (0.0..=1.0).contains(p))?;
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut highest = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        highest = highest.max((p_values[at] * (p_values.len() - rank) as f64).min(1.0));
        corrected[at] = highest;
    }
    Ok(corrected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_has_a_mean_and_no_more() {
        let one = difference(0.95, &[3.0], &[1.0]);
        assert_eq!(one, Ok(Difference { pairs: 1, mean: 2.0, deviation: None, test: None }));
    }

    #[test]
    fn equal_differences_are_no_test() {
        // 0.3 - 0.2 and 0.5 - 0.4 differ by 3e-17, which t would find highly significant.
        for (arm, baseline) in [([0.3, 0.5, 0.7], [0.2, 0.4, 0.6]), ([1.0; 3], [1.0; 3])] {
            let same = difference(0.95, &arm, &baseline).expect("three pairs of numbers");
            assert_eq!((same.deviation, same.test), (Some(0.0), None));
        }
    }

    #[test]
    fn arms_that_do_not_pair_up_are_unfit() {
        assert_eq!(difference(0.95, &[1.0], &[]), Err(Unfit::Unpaired { left: 1, right: 0 }));
        assert_eq!(difference(0.95, &[], &[]), Err(Unfit::Empty));
        assert!(difference(0.95, &[f64::NAN], &[1.0]).is_err());
        assert!(difference(1.0, &[2.0], &[1.0]).is_err());
        assert_eq!(sign_flip(0, &[]), Err(Unfit::Empty));
        assert!(sign_flip(0, &[f64::INFINITY]).is_err());
        assert!(holm(&[0.1, f64::NAN]).is_err() && holm(&[1.1]).is_err());
        assert_eq!(holm(&[]), Ok(vec![]));
    }

    #[test]
    fn five_of_five_in_one_direction_flip_to_a_sixteenth() {
        let all = sign_flip(0, &[1.0, 2.0, 0.5, 3.0, 0.1]);
        assert_eq!(all, Ok(SignFlip { p_value: 0.0625, standard_error: None }));
        assert_eq!(sign_flip(0, &[0.0; 4]).map(|flip| flip.p_value), Ok(1.0));
    }

    #[test]
    fn drawn_flips_are_near_to_all_flips() {
        // 20 ones and signs: |sum| >= 10 with 20 coins is P(X <= 5 or X >= 15) = 0.041389.
        let mut differences = [1.0; 20];
        differences[..5].fill(-1.0);
        let drawn = sign_flip(7, &differences).expect("twenty numbers");
        let error = drawn.standard_error.expect("flips are drawn beyond sixteen");
        assert!((error - 0.000_63).abs() < 1e-5, "{error}");
        assert!((drawn.p_value - 0.041_389).abs() < 4.0 * error, "{drawn:?}");
        assert_eq!(sign_flip(7, &differences), Ok(drawn));
        assert!(sign_flip(7, &[1.0; 100]).is_ok_and(|flip| flip.p_value > 0.0));
    }

    #[test]
    fn holm_keeps_the_order_it_was_given() {
        let corrected = holm(&[0.04, 0.01, 0.03]).expect("these are p-values");
        let expected = [0.06, 0.03, 0.06];
        assert!(corrected.iter().zip(expected).all(|(c, e)| (c - e).abs() < 1e-15), "{corrected:?}");
    }
}
