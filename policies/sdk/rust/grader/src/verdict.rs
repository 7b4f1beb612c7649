//! Verdicts, in a word each.

use crate::types::{Judgement, Part, Reward, Verdict};

impl Verdict {
    /// The run's reward of a right answer, or of a wrong one.
    pub fn correct(correct: bool) -> Self {
        Self::Judged(Judgement { correct: Some(correct), reward: Reward::ByCorrectness })
    }

    /// This much, and whether the answer is right.
    pub fn reward(reward: f32, correct: bool) -> Self {
        Self::Judged(Judgement { correct: Some(correct), reward: Reward::Number(reward) })
    }

    /// A reward in parts, and whether the answer is right: all parts that the description has.
    pub fn parts<'a>(parts: impl IntoIterator<Item = (&'a str, f32)>, correct: bool) -> Self {
        let parts = parts.into_iter().map(|(name, value)| Part { name: name.to_owned(), value }).collect();
        Self::Judged(Judgement { correct: Some(correct), reward: Reward::Parts(parts) })
    }

    /// The same reward, and it is for the run to say from which reward on an answer is right.
    #[must_use]
    pub fn undecided(self) -> Self {
        match self {
            Self::Judged(judgement) => Self::Judged(Judgement { correct: None, ..judgement }),
            Self::Unscorable(why) => Self::Unscorable(why),
        }
    }

    /// No verdict, and why not, in one line.
    pub fn unscorable(why: impl Into<String>) -> Self {
        Self::Unscorable(why.into())
    }
}
