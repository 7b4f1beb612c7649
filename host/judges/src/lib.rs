//! Rewards: from what a rollout says to how good it was.
//!
//! Here is what every judge of rollouts has in common ([`Reward`]), and the reward of the coin-flip world. [`graded`]
//! grades a model's answers as text; [`graders`] are one or several, each for a part of the reward. A grader is a function
//! of ours, [`processes`] that speak the lines of [`protocol`], Python in the sandbox ([`sandboxed`], by [`python`]), a server ([`http`]),
//! or a [`component`] of the user's own; `allot_settings::reward` is what a run's config says of it. A judge is a language model that
//! grades. Graders say whether an answer is right, and the run what becomes of a reward.
//!
//! ```
//! use allot_judges::{UNSCORABLE, Verdict};
//!
//! // Partly right, with a reward of its own; and an answer without a verdict.
//! assert_eq!(Verdict::plain(0.25, false).reward, Some(0.25));
//! assert_eq!(UNSCORABLE.reward, None);
//! ```

pub mod component;
pub mod environment;
pub mod graded;
pub mod grader;
pub mod graders;
pub mod http;
pub mod identity;
pub mod process;
pub mod processes;
pub mod protocol;
pub mod python;
pub mod sandboxed;
mod single;
mod workers;

use allot_base::Result;
use allot_engine::Sample;
use serde::{Deserialize, Serialize};

use protocol::Part;

/// A rollout's verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The reward, or none where it could not be scored.
    pub reward: Option<f32>,
    /// Whether the answer was right, whatever else the reward counts.
    pub correct: bool,
    /// The parts that the reward is made of, where a grader gives them by name.
    pub parts: Vec<Part>,
}

/// No verdict at all.
pub const UNSCORABLE: Verdict = Verdict { reward: None, correct: false, parts: Vec::new() };

impl Verdict {
    /// A verdict whose reward has no parts.
    pub fn plain(reward: f32, correct: bool) -> Self {
        Self { reward: Some(reward), correct, parts: Vec::new() }
    }
}

/// Something that judges rollouts.
pub trait Reward<A> {
    /// A rollout is whole while others are still sampled, and judging it may begin: that of this place among those
    /// that were granted. [`Reward::score`] asks for its verdict.
    fn begin(&mut self, _place: usize, _sample: &Sample<A>) {}

    /// One verdict for each of these rollouts, given with their places, in their order. One that is missing at the end
    /// is none. An error means that nothing can be judged any more, and ends the run.
    fn score(&mut self, samples: &[(usize, &Sample<A>)]) -> impl Future<Output = Result<Vec<Verdict>>>;
}

/// For answers that know by themselves whether they are right: 1 or 0.
#[derive(Clone, Copy, Debug)]
pub struct RightOrWrong;

impl Reward<bool> for RightOrWrong {
    async fn score(&mut self, samples: &[(usize, &Sample<bool>)]) -> Result<Vec<Verdict>> {
        let verdict = |(_, s): &(usize, &Sample<bool>)| Verdict::plain(f32::from(s.answer), s.answer);
        Ok(samples.iter().map(verdict).collect())
    }
}
