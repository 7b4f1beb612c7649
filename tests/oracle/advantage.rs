//! The host's advantages.

use allot_allocation::advantage::{Scale, of_pick};
use allot_allocation::{Advantage, Group, Pick, PromptId};

use crate::case::close;

/// The advantages of a whole group of these rewards.
pub fn of(rewards: &[f32], epsilon: f64, normalize: bool) -> Vec<f64> {
    let n = rewards.len();
    let group = Group {
        sampling: Vec::new(),
        prompt: PromptId(0),
        epoch: 0,
        rewards: rewards.to_vec(),
        correct: vec![false; n],
        tokens: vec![1; n],
        ages: vec![0; n],
        truncated: vec![false; n],
        signals: Vec::new(),
        trained: Vec::new(),
        turns: allot_allocation::GroupTurns::default(),
    };
    let pick = Pick { prompt: PromptId(0), rollouts: None, advantage: Advantage::Picked, weight: 1.0 };
    of_pick(&pick, &group, Scale { normalize, epsilon, ..Scale::default() })
        .into_iter()
        .map(f64::from)
        .collect()
}

/// Whether all agree with upstream's f32, in the same order.
pub fn agree(ours: &[f64], theirs: &[f64]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| close(*a, *b, 2e-3))
}
