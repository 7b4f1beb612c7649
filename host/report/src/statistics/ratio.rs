//! Differences and ratios of two arms over the same seeds, with intervals by the paired bootstrap.
//!
//! A resample takes the same seeds of both arms, so that what a seed does to both (the order of prompts,
//! the luck of the start) falls out, as it does in [`difference`](super::difference).

use super::resample::Block;
use super::{Bootstrap, Estimate, Unfit, Wait, mean, paired_up, survival};

/// The mean of the arm less that of the baseline, in their unit.
///
/// Indices from outside, here as in all of this file: one for each seed.
pub fn difference_of_means(bootstrap: &Bootstrap, arm: &[f64], baseline: &[f64]) -> Result<Estimate, Unfit> {
    paired_up("a value to compare", arm, baseline)?;
    estimate(bootstrap, arm.len(), |seeds| mean_of(arm, seeds) - mean_of(baseline, seeds))
}

/// How many times the baseline's mean is that of the arm: of costs, above 1 where the arm saves.
///
/// [`Unfit::Undefined`] where the arm's mean is 0, and where a resample makes it 0 / 0.
pub fn ratio_of_means(bootstrap: &Bootstrap, arm: &[f64], baseline: &[f64]) -> Result<Estimate, Unfit> {
    paired_up("a value to compare", arm, baseline)?;
    estimate(bootstrap, arm.len(), |seeds| mean_of(baseline, seeds) / mean_of(arm, seeds))
}

/// How many times the baseline's restricted mean time to a target is that of the arm: above 1 where the
/// arm is faster. `tau` is the time that both are restricted to, where runs were ended.
///
/// Both survival functions are estimated anew on each resample. Errors as [`ratio_of_means`].
pub fn restricted_mean_ratio(
    bootstrap: &Bootstrap,
    arm: &[Wait],
    baseline: &[Wait],
    tau: f64,
) -> Result<Estimate, Unfit> {
    if arm.len() != baseline.len() {
        return Err(Unfit::Unpaired { left: arm.len(), right: baseline.len() });
    }
    survival::checked(arm)?;
    survival::checked(baseline)?;
    let tau = survival::horizon(tau)?;
    let mut taken = Vec::with_capacity(arm.len());
    let mut restricted_mean = |waits: &[Wait], seeds: &[u32]| {
        taken.clear();
        taken.extend(seeds.iter().map(|seed| waits[*seed as usize]));
        survival::restricted_mean(&mut taken, tau)
    };
    estimate(bootstrap, arm.len(), |seeds| restricted_mean(baseline, seeds) / restricted_mean(arm, seeds))
}

/// A statistic of seeds, on all of them and on resamples.
fn estimate(
    bootstrap: &Bootstrap,
    seeds: usize,
    mut statistic: impl FnMut(&[u32]) -> f64,
) -> Result<Estimate, Unfit> {
    let all: Vec<u32> = (0..seeds as u32).collect();
    let value = statistic(&all);
    if !value.is_finite() {
        return Err(Unfit::Undefined);
    }
    let interval = bootstrap.interval(&[Block { count: seeds, runs: seeds }], statistic)?;
    Ok(Estimate { value, interval })
}

/// The mean of an arm over some seeds, which may come more than once.
fn mean_of(arm: &[f64], seeds: &[u32]) -> f64 {
    mean(seeds.iter().map(|seed| arm[*seed as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_seeds_do_to_both_arms_falls_out() {
        let baseline = [10.0, 80.0, 30.0];
        let (arm, half) = (baseline.map(|b| b + 1.0), baseline.map(|b| b / 2.0));
        let bootstrap = Bootstrap::seeded(1, 200);
        let difference = difference_of_means(&bootstrap, &arm, &baseline).expect("three pairs");
        assert!((difference.interval.high - difference.interval.low).abs() < 1e-12, "{difference:?}");
        let ratio = ratio_of_means(&bootstrap, &half, &baseline).expect("three pairs");
        assert_eq!((ratio.value, ratio.interval.low, ratio.interval.high), (2.0, 2.0, 2.0));
        let waits = |times: [f64; 3]| times.map(Wait::Reached);
        let ratio = restricted_mean_ratio(&bootstrap, &waits(half), &waits(baseline), 1000.0);
        assert!(ratio.is_ok_and(|r| (r.interval.low - 2.0).abs() + (r.interval.high - 2.0).abs() < 1e-12));
    }

    #[test]
    fn a_division_by_0_is_no_number() {
        let bootstrap = Bootstrap::seeded(1, 200);
        assert_eq!(ratio_of_means(&bootstrap, &[0.0, 0.0], &[1.0, 2.0]), Err(Unfit::Undefined));
        assert_eq!(ratio_of_means(&bootstrap, &[0.0, 1.0], &[0.0, 2.0]), Err(Unfit::Undefined));
        let open = ratio_of_means(&bootstrap, &[0.0, 1.0], &[1.0, 2.0]).expect("the means are not 0");
        assert_eq!((open.value, open.interval.high), (3.0, f64::INFINITY));
        let never = [Wait::Longer(5.0); 2];
        assert_eq!(restricted_mean_ratio(&bootstrap, &never, &never, 0.0), Err(Unfit::Undefined));
    }

    #[test]
    fn arms_that_do_not_pair_up_are_unfit() {
        let bootstrap = Bootstrap::seeded(1, 10);
        assert!(difference_of_means(&bootstrap, &[1.0], &[1.0, 2.0]).is_err());
        assert_eq!(ratio_of_means(&bootstrap, &[], &[]), Err(Unfit::Empty));
        assert_eq!(restricted_mean_ratio(&bootstrap, &[], &[], 1.0), Err(Unfit::Empty));
        let one = [Wait::Reached(1.0)];
        assert!(restricted_mean_ratio(&bootstrap, &one, &[], 1.0).is_err());
        assert!(restricted_mean_ratio(&bootstrap, &one, &one, f64::NAN).is_err());
    }
}
