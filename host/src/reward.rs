//! Rewards: from what a rollout says to how good it was.

use allot_engine::Sample;

/// A rollout's verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The reward, or none where it could not be scored.
    pub reward: Option<f32>,
    /// Whether the answer was right, whatever else the reward counts.
    pub correct: bool,
}

/// No verdict at all.
pub const UNSCORABLE: Verdict = Verdict { reward: None, correct: false };

/// Something that judges rollouts.
pub trait Reward<A> {
    /// One verdict for each rollout, in their order. One that is missing at the end is none.
    fn score(&mut self, samples: &[Sample<A>]) -> impl Future<Output = Vec<Verdict>>;
}

/// For answers that know by themselves whether they are right: 1 or 0.
#[derive(Clone, Copy, Debug)]
pub struct RightOrWrong;

impl Reward<bool> for RightOrWrong {
    async fn score(&mut self, samples: &[Sample<bool>]) -> Vec<Verdict> {
        let verdict = |s: &Sample<bool>| Verdict { reward: Some(f32::from(s.answer)), correct: s.answer };
        samples.iter().map(verdict).collect()
    }
}
