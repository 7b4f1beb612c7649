//! Randomness: hashes of counters with the run's seed. There is no other source.
//!
//! A draw does not depend on earlier draws, on call order or on batch shape. If two runs with the same seed
//! sample the same prompt at the same weights, they get the same rollouts, whatever their policies did in
//! between. So comparisons are paired by construction, and resuming a run needs no generator state.

use crate::PromptId;

/// The use of a draw. It is part of the hash, so that no two uses share a stream.
#[derive(Clone, Copy)]
enum Use {
    Order = 1,
    Policy = 2,
    Rollout = 3,
    World = 4,
    Tuning = 5,
    Bank = 6,
    BankRate = 7,
    Turn = 8,
    Start = 9,
}

/// Returns the seed of one rollout. `version` is the number of model updates before it; `position` is its
/// index among the prompt's rollouts at that version.
pub fn rollout(run: u64, prompt: PromptId, version: u32, position: u32) -> u64 {
    mix(run, Use::Rollout, &[u64::from(prompt.0), u64::from(version), u64::from(position)])
}

/// Returns the seed of a turn of a rollout, from the rollout's own. The first turn has the rollout's, so that an
/// episode of one turn is a plain answer.
pub fn turn(rollout: u64, turn: u32) -> u64 {
    if turn == 0 { rollout } else { mix(rollout, Use::Turn, &[u64::from(turn)]) }
}

/// Returns the seed of an environment's start. `since` is the version at which the prompt's group began, so that all
/// rollouts of a group start alike.
pub fn start(run: u64, prompt: PromptId, since: u32) -> u64 {
    mix(run, Use::Start, &[u64::from(prompt.0), u64::from(since)])
}

/// Returns the seed shown to a policy in one call.
pub fn policy(run: u64, step: u32, round: u32) -> u32 {
    mix(run, Use::Policy, &[u64::from(step), u64::from(round)]) as u32
}

/// Returns the seed of a part of a simulated world.
pub fn world(run: u64, part: u64, index: u64) -> u64 {
    mix(run, Use::World, &[part, index])
}

/// Returns the seed for the order in which a bank's rollouts of a prompt are drawn at a version.
pub fn bank(run: u64, prompt: PromptId, version: u32) -> u64 {
    mix(run, Use::Bank, &[u64::from(prompt.0), u64::from(version)])
}

/// Returns the seed of a prompt's pass rate, for a bank that has too few rollouts of the prompt.
pub fn bank_rate(run: u64, prompt: PromptId) -> u64 {
    mix(run, Use::BankRate, &[u64::from(prompt.0)])
}

/// Returns the seed of the draws for a tuned setting, by its name.
pub fn tuning(run: u64, key: &str) -> u64 {
    let parts: Vec<u64> = key.bytes().map(u64::from).collect();
    mix(run, Use::Tuning, &parts)
}

/// Returns the prompt order of an epoch: a permutation of `0..prompts`.
pub fn order(run: u64, epoch: u32, prompts: u32) -> Vec<u32> {
    Stream(mix(run, Use::Order, &[u64::from(epoch)])).order(prompts)
}

fn mix(run: u64, used_for: Use, parts: &[u64]) -> u64 {
    parts.iter().fold(finish(finish(run) ^ used_for as u64), |hash, part| finish(hash ^ finish(*part)))
}

/// SplitMix64's step and finish (Steele, Lea, Flood 2014).
fn finish(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of draws from one seed.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// Returns the stream for a seed made by this module.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let bits = finish(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits
    }

    /// Returns a uniform number in [0, 1), with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a permutation of `0..n`.
    pub fn order(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        // Fisher–Yates, from the back.
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// Returns a uniform integer in `0..n`. `n` is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These numbers are in every record: if they change, no old run can be resumed or paired.
    #[test]
    fn seeds_never_change() {
        assert_eq!(rollout(1, PromptId(2), 3, 4), 10_761_236_734_043_951_028);
    }

    #[test]
    fn an_order_is_a_permutation_of_its_epoch() {
        let mut first = order(7, 0, 1000);
        assert_ne!(first, order(7, 1, 1000));
        assert_eq!(first, order(7, 0, 1000));
        first.sort_unstable();
        assert_eq!(first, (0..1000).collect::<Vec<_>>());
        assert!(order(7, 0, 0).is_empty());
    }

    #[test]
    fn neighbours_do_not_share_streams() {
        let mut seen: Vec<u64> = (0..20)
            .flat_map(|p| (0..20).flat_map(move |v| (0..20).map(move |i| rollout(5, PromptId(p), v, i))))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 8000);
        // The mean of one draw from each stream: 0.5 with a standard deviation of 0.0032.
        let mean = seen.iter().map(|s| Stream::new(*s).unit()).sum::<f64>() / 8000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
    }
}
