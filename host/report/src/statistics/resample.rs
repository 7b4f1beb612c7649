//! Resampling: Efron's bootstrap, with percentile intervals.
//!
//! The runs of a resample are drawn from a seed or given; the computation is the same. So intervals can be
//! compared with those of rliable and arch for equal resamples.

use super::{Interval, Unfit, level_within};

/// Options of a bootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap<'a> {
    /// Share of the resamples' distribution that the interval contains, above 0 and below 1: 0.95.
    pub level: f64,
    /// Origin of the resamples.
    pub draws: Draws<'a>,
}

/// Origin of the resamples.
#[derive(Clone, Copy, Debug)]
pub enum Draws<'a> {
    /// Drawn by [`Random`].
    Seeded {
        /// The seed. Equal seeds give equal resamples of data of equal shape.
        seed: u64,
        /// Number of resamples. rliable uses 50,000 for intervals of scores, and 2,000 for curves.
        resamples: u32,
    },
    /// Given: resamples × indices, each the number of a run.
    ///
    /// Each function documents the number and meaning of its indices.
    Given(&'a [Vec<u32>]),
}

/// Indices that are drawn from the same runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Number of indices.
    pub count: usize,
    /// Number of runs to draw from.
    pub runs: usize,
}

impl Bootstrap<'static> {
    /// Returns options for intervals at level 0.95, with resamples from a seed.
    pub fn seeded(seed: u64, resamples: u32) -> Self {
        Self { level: 0.95, draws: Draws::Seeded { seed, resamples } }
    }
}

impl Bootstrap<'_> {
    /// Returns the percentile intervals of several statistics at once.
    ///
    /// `compute` gets the indices of a resample, block after block, and writes its statistics. As arch's
    /// `conf_int(method="percentile")`: `numpy.percentile` at `(1 - level) / 2` and at one minus that
    /// (`arch/bootstrap/base.py`).
    pub(super) fn intervals(
        &self,
        blocks: &[Block],
        statistics: usize,
        mut compute: impl FnMut(&[u32], &mut [f64]),
    ) -> Result<Vec<Interval>, Unfit> {
        let level = level_within("a level of confidence", self.level)?;
        let expected = blocks.iter().map(|block| block.count).sum();
        let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); statistics];
        let mut row = vec![0.0; statistics];
        let mut take = |indices: &[u32]| {
            compute(indices, &mut row);
            drawn.iter_mut().zip(&row).for_each(|(all, one)| all.push(*one));
        };
        match self.draws {
            Draws::Seeded { seed, resamples } => {
                let mut random = Random::new(seed);
                let mut indices = Vec::with_capacity(expected);
                for _ in 0..resamples {
                    indices.clear();
                    for block in blocks {
                        indices.extend((0..block.count).map(|_| random.below(block.runs as u32)));
                    }
                    take(&indices);
                }
            }
            Draws::Given(given) => {
                for (resample, indices) in given.iter().enumerate() {
                    let bounds = blocks.iter().flat_map(|b| std::iter::repeat_n(b.runs, b.count));
                    let exist = indices.iter().zip(bounds).all(|(index, runs)| (*index as usize) < runs);
                    if indices.len() != expected || !exist {
                        return Err(Unfit::Draws { resample, expected });
                    }
                    take(indices);
                }
            }
        }
        drawn.into_iter().map(|values| interval(values, level)).collect()
    }

    /// Returns the percentile interval of one statistic.
    pub(super) fn interval(
        &self,
        blocks: &[Block],
        mut statistic: impl FnMut(&[u32]) -> f64,
    ) -> Result<Interval, Unfit> {
        let intervals = self.intervals(blocks, 1, |indices, out| out[0] = statistic(indices))?;
        intervals.first().copied().ok_or(Unfit::Empty)
    }
}

/// Returns the central interval that contains the share `level` of the values.
fn interval(mut values: Vec<f64>, level: f64) -> Result<Interval, Unfit> {
    if values.is_empty() {
        return Err(Unfit::Empty);
    }
    if values.iter().any(|value| value.is_nan()) {
        return Err(Unfit::Undefined);
    }
    values.sort_unstable_by(f64::total_cmp);
    let outside = (1.0 - level) / 2.0;
    Ok(Interval { low: of_sorted(&values, outside), high: of_sorted(&values, 1.0 - outside) })
}

/// Returns the quantile of values at `part`, from 0 to 1, with linear interpolation, as `numpy.percentile`
/// does by default. `None` without values, with NaN, or if `part` is out of range.
pub fn percentile(values: &[f64], part: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) || !(0.0..=1.0).contains(&part) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(of_sorted(&sorted, part))
}

/// Returns the quantile of sorted values, which must exist and not be NaN.
fn of_sorted(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len() - 1;
    let at = part * last as f64;
    let below = (at.floor() as usize).min(last);
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let rest = at - below as f64;
    if low == high || rest <= 0.0 {
        low
    } else if rest < 0.5 {
        low + (high - low) * rest
    } else {
        // From the other end, as in numpy's `_lerp`, so that rounding does not exceed `high`.
        high - (high - low) * (1.0 - rest)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"): one addition and
/// one mixing per number, the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed; any seed is good.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, uniform to within a part in 2^32; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_is_what_vigna_published() {
        // The first three numbers of https://prng.di.unimi.it/splitmix64.c for seed 1234567.
        let mut random = Random::new(1_234_567);
        let three = [random.bits(), random.bits(), random.bits()];
        assert_eq!(three, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn below_is_even_and_never_reaches_its_bound() {
        let mut random = Random::new(3);
        let mut counts = [0_u32; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        // Five standard deviations of a binomial: 5 · sqrt(70000 · 1/7 · 6/7) = 463.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 463), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }

    #[test]
    fn percentiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        let parts = [(0.0, 1.0), (0.5, 2.5), (0.25, 1.75), (0.9, 3.7), (1.0, 4.0)];
        for (part, expected) in parts {
            assert!(percentile(&values, part).is_some_and(|p| (p - expected).abs() < 1e-12), "{part}");
        }
        assert_eq!(percentile(&[7.0], 0.3), Some(7.0));
        assert_eq!(percentile(&[f64::INFINITY; 2], 0.3), Some(f64::INFINITY));
    }

    #[test]
    fn percentiles_of_nothing_are_none() {
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(percentile(&[1.0], 1.5), None);
        assert_eq!(percentile(&[1.0], f64::NAN), None);
    }

    #[test]
    fn indices_from_outside_are_checked() {
        let block = [Block { count: 2, runs: 3 }];
        let try_out = |given: &[Vec<u32>]| {
            let bootstrap = Bootstrap { level: 0.9, draws: Draws::Given(given) };
            bootstrap.interval(&block, |indices| f64::from(indices[0] + indices[1]))
        };
        assert!(try_out(&[vec![0, 2], vec![1, 1]]).is_ok_and(|i| i.low == 2.0 && i.high == 2.0));
        assert_eq!(try_out(&[]), Err(Unfit::Empty));
        assert_eq!(try_out(&[vec![0, 2], vec![1, 3]]), Err(Unfit::Draws { resample: 1, expected: 2 }));
        assert_eq!(try_out(&[vec![0]]), Err(Unfit::Draws { resample: 0, expected: 2 }));
        assert_eq!(try_out(&[vec![0, 1, 1]]), Err(Unfit::Draws { resample: 0, expected: 2 }));
    }
}
