//! PODS (arXiv 2504.13818): samples n rollouts of each prompt and trains on the m among them whose
//! rewards differ most. Those are always some of the highest and some of the lowest.
//!
//! Upstream: YixuanEvenXu/pods 187f43b, `trainer/maxvargrpo_trainer.py:515-533` and its neighbours for
//! `max-reward` and `random`. Departures: prefix sums in f64, O(n log n), where upstream has an f32
//! variance for each split; m below 2 is an error, where upstream crashes or gives NaN, and n <= m
//! keeps all. The multi-GPU trainer's selection (`open-r1/src/open_r1/
//! grpo_trainer.py:1116`) writes through a view and stops at the first split that is better than the
//! top m: not copied. Upstream adds 1e-4 to the deviation, which here is the host's to say.

use allot_policy::prelude::*;

/// Samples many, trains on the few whose rewards differ most.
pub struct Pods;

/// What a run may set.
#[derive(Settings)]
pub struct PodsSettings {
    /// Rollouts to sample of each prompt; 0 for the run's own number.
    #[setting(default = 0)]
    generate: u32,
    /// Rollouts of each prompt to train on.
    #[setting(default = 8)]
    keep: u32,
    /// Which to train on: max-variance, max-reward or random.
    #[setting(default = Rule::MaxVariance)]
    rule: Rule,
}

/// Which rollouts to train on.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The subset of largest variance of rewards: the paper's.
    MaxVariance,
    /// The highest rewards. The paper's ablation: it collapses.
    MaxReward,
    /// Any. The paper's other ablation.
    Random,
}

impl Policy for Pods {
    const NAME: &'static str = "pods";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "samples many, trains on the few whose rewards differ most";
    type Settings = PodsSettings;
    type State = ();

    fn begin(settings: &PodsSettings, run: &Run) -> Result<(), Error> {
        if settings.keep < 2 {
            let reason = "must be at least 2: one rollout alone has no deviation to be measured by";
            return Err(bad_setting("keep", reason));
        }
        needs_two(Some(("generate", settings.generate)), run)
    }

    fn decide(settings: &PodsSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            let rollouts = or_else(settings.generate, run.rollouts);
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, rollouts))));
        }
        let mut chance = Chance::new(view.seed);
        let m = settings.keep.max(1) as usize;
        Ok(Plan::train(view.groups.iter().map(|group| {
            let kept = match settings.rule {
                Rule::MaxVariance => max_variance(&group.rewards, m),
                Rule::MaxReward => max_reward(&group.rewards, m),
                Rule::Random => chance.draw(group.len(), m).iter().map(|i| *i as u32).collect(),
            };
            // One rollout alone has no deviation to be measured by: upstream's advantage is NaN.
            let advantage = if kept.len() == 1 { Advantage::Given(vec![0.0]) } else { Advantage::Picked };
            Pick::some(group.prompt, kept).advantage(advantage)
        })))
    }
}

/// Positions of the `m` rewards of largest variance: the top ones descending, then the bottom ones
/// descending. Of equal splits the first in upstream's order of trial wins: all from the top, then 0,
/// 1, … from the top.
pub fn max_variance(rewards: &[f32], m: usize) -> Vec<u32> {
    let order = descending(rewards);
    let n = order.len();
    if m >= n {
        return order;
    }
    // Measured from the middle of the range, so that the sums lose no digits to a common offset.
    let value = |rank: usize| f64::from(rewards[order[rank] as usize]);
    let middle = f64::midpoint(value(0), value(n - 1));
    let term = |rank: usize| {
        let x = value(rank) - middle;
        (x, x * x)
    };
    // m² times the variance of a split; whole numbers for 0/1 rewards, so that ties are exact.
    let spread = |(sum, squares): (f64, f64)| m as f64 * squares - sum * sum;
    let add = |a: (f64, f64), b: (f64, f64)| (a.0 + b.0, a.1 + b.1);
    // tails[k]: the sums of the k lowest. The heads' are run along with i.
    let mut tails = vec![(0.0, 0.0); m + 1];
    for k in 0..m {
        tails[k + 1] = add(tails[k], term(n - 1 - k));
    }
    let mut head = (0.0, 0.0);
    let mut splits = Vec::with_capacity(m);
    for i in 0..m {
        splits.push(spread(add(head, tails[m - i])));
        head = add(head, term(i));
    }
    let (mut best, mut most) = (m, spread(head));
    for (i, split) in splits.into_iter().enumerate() {
        // Strict, and by more than rounding can do.
        if split > most + most.abs() * 1e-12 {
            (best, most) = (i, split);
        }
    }
    order[..best].iter().chain(&order[n - (m - best)..]).copied().collect()
}

/// Positions of the `m` highest rewards, descending.
pub fn max_reward(rewards: &[f32], m: usize) -> Vec<u32> {
    let mut order = descending(rewards);
    order.truncate(m);
    order
}

/// Positions by reward, highest first; equal rewards in order of sampling.
fn descending(rewards: &[f32]) -> Vec<u32> {
    // Reward and position in one integer: several times faster than sorting positions by what they
    // point at. Adding 0 turns -0 into 0.
    let mut keys: Vec<u64> = (0u64..)
        .zip(rewards)
        .map(|(i, r)| {
            let bits = (r + 0.0).to_bits();
            let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
            u64::from(!ascending) << 32 | i
        })
        .collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| key as u32).collect()
}

allot_policy::export!(Pods);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn variance(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64
    }

    fn at(rewards: &[f32], positions: &[u32]) -> Vec<f64> {
        positions.iter().map(|i| f64::from(rewards[*i as usize])).collect()
    }

    /// All subsets of size `m`, not only the splits.
    fn brute(rewards: &[f32], m: usize) -> f64 {
        (0u32..1 << rewards.len())
            .filter(|set| set.count_ones() as usize == m)
            .map(|set| {
                let positions: Vec<u32> = (0..rewards.len() as u32).filter(|i| set >> i & 1 == 1).collect();
                variance(&at(rewards, &positions))
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn no_subset_has_more_variance() {
        let mut chance = Chance::new(7);
        for round in 0..300 {
            let n = 2 + chance.below(9);
            let offset = [0.0, 1000.0, -3.0][round % 3];
            let rewards: Vec<f32> = (0..n).map(|_| (chance.unit() + offset) as f32).collect();
            for m in 1..=n {
                let kept = max_variance(&rewards, m);
                assert_eq!(kept.len(), m);
                assert!(
                    variance(&at(&rewards, &kept)) >= brute(&rewards, m) * (1.0 - 1e-9),
                    "{rewards:?} {m}"
                );
            }
        }
    }

    #[test]
    fn right_and_wrong_are_kept_in_equal_parts() {
        let rewards: Vec<f32> = (0..128).map(|i| f32::from(u8::from(i % 3 == 0))).collect();
        for m in [32, 33] {
            let kept = max_variance(&rewards, m);
            let right = kept.iter().filter(|i| rewards[**i as usize] == 1.0).count();
            assert_eq!(right, m / 2, "of two balanced splits the one tried first");
        }
    }

    #[test]
    fn equal_rewards_keep_the_first() {
        assert_eq!(max_variance(&[0.1; 5], 3), [0, 1, 2]);
        assert_eq!(max_variance(&[0.0, -0.0, 0.0], 2), [0, 1]);
    }

    #[test]
    fn a_million_rewards() {
        let mut chance = Chance::new(3);
        let rewards: Vec<f32> = (0..1_000_000).map(|_| chance.unit() as f32).collect();
        let start = std::time::Instant::now();
        assert_eq!(max_variance(&rewards, 500_000).len(), 500_000);
        let took = start.elapsed();
        assert!(cfg!(debug_assertions) || took.as_millis() < 200, "{took:?}");
    }

    #[test]
    fn the_edges_are_defined() {
        assert!(begin::<Pods>(&run_with::<Pods>(&[("keep", Value::Integer(0))])).is_err());
        assert_eq!(max_variance(&[1.0, 0.0, 0.5], 5), [0, 2, 1]);

        let run = run_with::<Pods>(&[("keep", Value::Integer(1))]);
        let mut view = made::view(0..9);
        view.round = 1;
        view.groups = vec![made::group(4, &[0, 1, 0])];
        let Action::Train(batch) = decide::<Pods>(&run, &[], &view).unwrap().action else { panic!("trains") };
        assert_eq!(batch.picks, [Pick::some(4, vec![1]).advantage(Advantage::Given(vec![0.0]))]);
    }

    #[test]
    fn random_keeps_m() {
        let run = run_with::<Pods>(&[("keep", Value::Integer(2)), ("rule", Value::Text("random".into()))]);
        let mut view = made::view(0..9);
        view.round = 1;
        view.groups = vec![made::group(4, &[0, 1, 0]), made::group(5, &[0])];
        let Action::Train(batch) = decide::<Pods>(&run, &[], &view).unwrap().action else { panic!("trains") };
        assert_eq!(batch.picks[0].rollouts.as_ref().unwrap().len(), 2);
        assert_eq!(batch.picks[1].rollouts, Some(vec![0]));
    }
}
