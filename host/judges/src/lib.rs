//! Rewards of rollouts.
//!
//! [`Reward`] is the interface of everything that grades rollouts. [`graded`] grades a model's answers as
//! text. [`graders`] are one or several graders, each for a part of the reward: a built-in function,
//! [`processes`] that speak [`protocol`], Python in the sandbox ([`sandboxed`], [`python`]), a server
//! ([`http`]), or the user's [`component`]. Their config is `allot_settings::reward`. A judge is a language
//! model that grades. Graders decide whether an answer is correct; the run decides how rewards are used.
//!
//! ```
//! use allot_judges::{UNSCORABLE, Verdict};
//!
//! // Partly right, with a reward of its own; and an answer without a verdict.
//! assert_eq!(Verdict::plain(0.25, false).reward, Some(0.25));
//! assert_eq!(UNSCORABLE.reward, None);
//! ```

pub mod classes;
mod command;
pub mod component;
mod endpoint;
pub mod environment;
pub mod episodes;
mod gate;
pub mod graded;
pub mod grader;
pub mod graders;
pub mod http;
pub mod identity;
pub mod math;
mod output;
mod portions;
pub mod process;
pub mod processes;
pub mod program;
pub mod protocol;
pub mod python;
pub mod sandboxed;
mod sessions;
mod sidecar;
mod single;
pub mod verifiers;
mod workers;

use allot_base::Result;
use allot_engine::{Flip, Sample};
use serde::{Deserialize, Serialize};

use protocol::Part;

/// A rollout's verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The reward; none if the rollout could not be graded.
    pub reward: Option<f32>,
    /// Whether the answer is correct, independent of other parts of the reward.
    pub correct: bool,
    /// The reward's named parts, if a grader gives them.
    pub parts: Vec<Part>,
    /// Whether what math-verify in the sandbox says of it is [certain without an interpreter](math); none without
    /// that grader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certain: Option<bool>,
}

/// The verdict of a rollout that could not be graded.
pub const UNSCORABLE: Verdict = Verdict { reward: None, correct: false, parts: Vec::new(), certain: None };

impl Verdict {
    /// Returns a verdict whose reward has no parts.
    pub fn plain(reward: f32, correct: bool) -> Self {
        Self { reward: Some(reward), correct, parts: Vec::new(), certain: None }
    }
}

/// A source of rewards for rollouts.
pub trait Reward<A> {
    /// Starts grading a finished rollout while others are still sampled. `place` is its position among the
    /// granted ones. [`Reward::score`] returns its verdict.
    fn begin(&mut self, _place: usize, _sample: &Sample<A>) {}

    /// Returns whether rewards compare rollouts of one prompt, so that they are given only once a round is complete.
    fn compares(&self) -> bool {
        false
    }

    /// Returns a verdict for each of these rollouts, given with their places, in their order. Missing
    /// verdicts at the end count as unscorable. An error ends the run, because grading is impossible.
    fn score(&mut self, samples: &[(usize, &Sample<A>)]) -> impl Future<Output = Result<Vec<Verdict>>>;
}

/// For answers that are themselves correct or not: 1 or 0.
#[derive(Clone, Copy, Debug)]
pub struct RightOrWrong;

impl Reward<Flip> for RightOrWrong {
    async fn score(&mut self, samples: &[(usize, &Sample<Flip>)]) -> Result<Vec<Verdict>> {
        let verdict =
            |(_, s): &(usize, &Sample<Flip>)| Verdict::plain(f32::from(s.answer.right), s.answer.right);
        Ok(samples.iter().map(verdict).collect())
    }
}
