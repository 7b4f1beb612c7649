//! Computes advantages from rewards.
//!
//! The rule is GRPO's as implemented in verl (`verl/trainer/ppo/core_algos.py`,
//! `compute_grpo_outcome_advantage`): `A_i = (r_i - mean) / (std + epsilon)`, with the sample `std`. Here
//! it is computed in f64, and is exactly 0 if all rewards of the population are equal.
//!
//! One difference: for a population of one, verl uses mean 0 and std 1, so `A = r`. Here that advantage is
//! 0, because a group-relative advantage needs two rollouts. Otherwise a prompt whose other rollouts could
//! not be scored would train on one reward without a baseline. A policy may give its own advantages.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{Advantage, Group, Pick};

/// How a run scales advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// Whether to divide by the std (GRPO) or not (Dr. GRPO).
    pub normalize: bool,
    /// Added to the std. verl uses 1e-6, PODS 1e-4.
    pub epsilon: f64,
    /// Whether a rollout's baseline is the mean of the other rollouts, as in RLOO (Ahmadian et al. 2024),
    /// instead of the mean of all.
    pub leave_one_out: bool,
}

impl Default for Scale {
    fn default() -> Self {
        Self { normalize: true, epsilon: 1e-6, leave_one_out: false }
    }
}

/// Returns the advantages of a pick, one for each picked rollout, in the order of the pick.
///
/// The pick must be legal for the group ([`rules::check`](crate::rules::check)).
pub fn of_pick(pick: &Pick, group: &Group, scale: Scale) -> Vec<f32> {
    let picked: Vec<f64> =
        pick.positions(group.len()).into_iter().map(|i| f64::from(group.rewards[i])).collect();
    let weight = f64::from(pick.weight);
    match &pick.advantage {
        Advantage::Given(own) => own.iter().map(|a| (f64::from(*a) * weight) as f32).collect(),
        // The mean over its turns tells of a rollout where there is one number for it.
        Advantage::ByTurn(_) => by_turn(pick).iter().map(|own| mean(own)).collect(),
        Advantage::Picked => measured(&picked, &picked, scale, weight),
        Advantage::Group => {
            let all: Vec<f64> = group.rewards.iter().map(|r| f64::from(*r)).collect();
            measured(&picked, &all, scale, weight)
        }
        Advantage::Among(positions) => {
            let population: Vec<f64> =
                positions.iter().map(|i| f64::from(group.rewards[*i as usize])).collect();
            let inside: Vec<f32> = measured(&picked, &population, scale, weight);
            // A rollout outside the population is compared with all of it, without leaving one out.
            let all = Scale { leave_one_out: false, ..scale };
            let outside: Vec<f32> = measured(&picked, &population, all, weight);
            let members: HashSet<usize> = positions.iter().map(|i| *i as usize).collect();
            let of = pick.positions(group.len());
            of.iter()
                .enumerate()
                .map(|(n, i)| if members.contains(i) { inside[n] } else { outside[n] })
                .collect()
        }
    }
}

/// Returns the advantages by turn of a pick that gives them, for each picked rollout.
pub fn by_turn(pick: &Pick) -> Vec<Vec<f32>> {
    let Advantage::ByTurn(own) = &pick.advantage else { return Vec::new() };
    let weighted = |a: &f32| (f64::from(*a) * f64::from(pick.weight)) as f32;
    own.iter().map(|own| own.iter().map(weighted).collect()).collect()
}

fn mean(numbers: &[f32]) -> f32 {
    let sum: f64 = numbers.iter().map(|a| f64::from(*a)).sum();
    (sum / numbers.len().max(1) as f64) as f32
}

/// Returns the advantages of `rewards` relative to a population that is not empty.
fn measured(rewards: &[f64], population: &[f64], scale: Scale, weight: f64) -> Vec<f32> {
    let n = population.len() as f64;
    // A population of one gives no baseline, and equal rewards give no signal.
    if population.len() == 1 || population.iter().all(|r| *r == population[0]) {
        return vec![0.0; rewards.len()];
    }
    let mean = population.iter().sum::<f64>() / n;
    let squares = population.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>();
    let deviation = (squares / (n - 1.0)).sqrt();
    // r - mean of the others = n / (n - 1) · (r - mean of all).
    let weight = if scale.leave_one_out { weight * n / (n - 1.0) } else { weight };
    let scale = if scale.normalize { weight / (deviation + scale.epsilon) } else { weight };
    rewards.iter().map(|r| ((r - mean) * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PromptId;

    fn group(rewards: &[f32]) -> Group {
        let n = rewards.len();
        Group {
            prompt: PromptId(0),
            epoch: 0,
            rewards: rewards.to_vec(),
            correct: vec![false; n],
            tokens: vec![1; n],
            ages: vec![0; n],
            truncated: vec![false; n],
            signals: Vec::new(),
            sampling: Vec::new(),
            trained: Vec::new(),
            turns: crate::GroupTurns::default(),
        }
    }

    fn pick(rollouts: Option<Vec<u32>>, advantage: Advantage) -> Pick {
        Pick { prompt: PromptId(0), rollouts, advantage, weight: 1.0 }
    }

    #[test]
    fn picked_and_group_measure_against_different_populations() {
        let group = group(&[1.0, 0.0, 0.0, 0.0]);
        let picked = of_pick(&pick(Some(vec![0, 1]), Advantage::Picked), &group, Scale::default());
        let whole = of_pick(&pick(Some(vec![0, 1]), Advantage::Group), &group, Scale::default());
        let half = std::f32::consts::FRAC_1_SQRT_2;
        assert!((picked[0] - half).abs() < 1e-5 && (picked[1] + half).abs() < 1e-5, "{picked:?}");
        assert!((whole[0] - 1.499_997).abs() < 1e-5 && (whole[1] + 0.499_999).abs() < 1e-5, "{whole:?}");
    }

    #[test]
    fn equal_rewards_teach_exactly_nothing() {
        // 0.1 seven times has a standard deviation of 1e-17 in floating point, not 0.
        let all = of_pick(&pick(None, Advantage::Picked), &group(&[0.1; 7]), Scale::default());
        assert_eq!(all, [0.0; 7]);
    }

    #[test]
    fn a_population_of_one_measures_nothing() {
        for scale in [Scale::default(), Scale { leave_one_out: true, normalize: false, ..Scale::default() }] {
            assert_eq!(of_pick(&pick(None, Advantage::Picked), &group(&[0.7]), scale), [0.0]);
            let among = pick(Some(vec![0, 1]), Advantage::Among(vec![1]));
            assert_eq!(of_pick(&among, &group(&[1.0, 0.0]), scale), [0.0; 2]);
        }
        let own = of_pick(&pick(None, Advantage::Given(vec![0.7])), &group(&[0.7]), Scale::default());
        assert_eq!(own, [0.7]);
    }

    #[test]
    fn given_advantages_are_only_weighted() {
        let mut pick = pick(Some(vec![1]), Advantage::Given(vec![3.0]));
        pick.weight = 0.5;
        assert_eq!(of_pick(&pick, &group(&[1.0, 0.0]), Scale::default()), [1.5]);
    }

    #[test]
    fn advantages_by_turn_are_weighted_and_their_mean_tells_of_the_rollout() {
        let own = Advantage::ByTurn(vec![vec![3.0, -1.0], vec![]]);
        let pick = Pick { weight: 0.5, ..pick(Some(vec![1, 0]), own) };
        assert_eq!(by_turn(&pick), [vec![1.5, -0.5], vec![]]);
        assert_eq!(of_pick(&pick, &group(&[1.0, 0.0]), Scale::default()), [0.5, 0.0]);
    }

    #[test]
    fn leaving_one_out_measures_against_the_others() {
        let scale = Scale { normalize: false, leave_one_out: true, ..Scale::default() };
        let all = of_pick(&pick(None, Advantage::Picked), &group(&[1.0, 0.0, 0.0, 0.5]), scale);
        let others = [1.0 - 0.5 / 3.0, -0.5, -0.5, 0.5 - 1.0 / 3.0];
        assert!(all.iter().zip(others).all(|(a, o)| (a - o).abs() < 1e-6), "{all:?}");
    }

    #[test]
    fn without_normalizing_only_the_mean_is_taken_off() {
        let scale = Scale { normalize: false, ..Scale::default() };
        assert_eq!(of_pick(&pick(None, Advantage::Picked), &group(&[1.0, 0.0]), scale), [0.5, -0.5]);
    }
}
