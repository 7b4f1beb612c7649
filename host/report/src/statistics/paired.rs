//! Differences between two arms over the same seeds: Student's paired t, the flipping of signs, and
//! Holm's correction for many comparisons.

use serde::Serialize;

use super::{Interval, Random, Unfit, finite, level_within, mean, paired_up, student, within};

/// A paired difference, arm less baseline, in the arms' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// How many pairs.
    pub pairs: usize,
    /// The mean difference.
    pub mean: f64,
    /// The deviation of the differences, with one degree of freedom less; `None` of one pair.
    pub deviation: Option<f64>,
    /// What Student's t makes of it; `None` of one pair, and where all differences are the same: scipy
    /// then says p = 0 or NaN, which is no evidence but a division by 0.
    pub test: Option<TTest>,
}

/// Student's t on paired differences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TTest {
    /// The mean over its standard error.
    pub t: f64,
    /// How likely a t so far from 0, on either side, is where the arms do not differ.
    pub p_value: f64,
    /// Where the mean difference lies, in the arms' unit.
    pub interval: Interval,
    /// Cohen's d for pairs: the mean over the deviation of the differences, both in the arms' unit.
    pub effect: f64,
}

/// Compares two arms, each a number for each of the same seeds, in order.
///
/// As `scipy.stats.ttest_rel(arm, baseline)`, with its interval at a level of confidence. Differences that
/// are the same but for rounding, to a part in 10^12 of the numbers, count as the same.
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

/// A p-value by the flipping of signs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SignFlip {
    /// The share of flips whose sum is at least as far from 0 as that of the differences as they are.
    pub p_value: f64,
    /// The standard error of that share where flips were drawn; `None` where all were gone through.
    pub standard_error: Option<f64>,
}

/// How many flips are drawn where there are too many to go through all.
pub const FLIPS: u32 = 100_000;

/// The two-sided permutation test of paired differences: if the arms do not differ, each difference may as
/// well have the other sign (Fisher 1935, "The design of experiments", § 21; `scipy.stats.permutation_test`
/// with `permutation_type="samples"`).
///
/// All `2^n` flips up to 16 pairs, beyond that [`FLIPS`] out of the seed, those as they are counted in
/// (Phipson and Smyth 2010), so that p is never 0. With 5 pairs it is never below 1 / 16.
pub fn sign_flip(seed: u64, differences: &[f64]) -> Result<SignFlip, Unfit> {
    finite("a difference", differences)?;
    let n = differences.len();
    // What rounding may make of a sum that is equal but for the order.
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

/// How far from 0 the sum is, with those differences flipped whose lowest bit is set.
fn flipped(differences: &[f64], bit: impl Fn(usize) -> u64) -> f64 {
    let signed = |(i, d): (usize, &f64)| if bit(i) & 1 == 1 { -d } else { *d };
    differences.iter().enumerate().map(signed).sum::<f64>().abs()
}

/// Holm's correction of a family of p-values (Holm 1979, "A simple sequentially rejective multiple test
/// procedure"): each, in the order given, so raised that all those at or below alpha may be held to be
/// differences, and any of them is none with probability alpha at most. As statsmodels'
/// `multipletests(method="holm")`.
///
/// A comparison that could not be tested belongs to the family all the same: pass 1.
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
