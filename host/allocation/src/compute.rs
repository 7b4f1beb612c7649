//! What a run computed beside what it spent, and ceilings on it.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::PromptId;

/// What an engine computed: the axes of a comparison that the ledger does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Prompt tokens read for sampling. A prompt that is read once for several answers counts once.
    pub prompt_tokens: u64,
    /// Tokens of answers learned from, once for each pass over them. Rollouts that were not computed,
    /// because they have no advantage, are not in it.
    pub trained_tokens: u64,
    /// Steps of the optimizer.
    pub optimizer_steps: u64,
    /// Floating-point operations.
    pub flops: Flops,
}

/// Floating-point operations, a multiplication and an addition counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// Of reading prompts.
    pub prefill: f64,
    /// Of generating answers.
    pub decode: f64,
    /// Of learning, with whatever is scored for it.
    pub training: f64,
}

impl Flops {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.prefill + self.decode + self.training
    }
}

impl Compute {
    /// Whether nothing was computed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Compute {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.trained_tokens += other.trained_tokens;
        self.optimizer_steps += other.optimizer_steps;
        self.flops.prefill += other.flops.prefill;
        self.flops.decode += other.flops.decode;
        self.flops.training += other.flops.training;
    }
}

/// What one rollout of a prompt costs at most, in floating-point operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of reading the prompt: once for all of its rollouts in a grant.
    pub reading: f64,
    /// Of generating the answer.
    pub answering: f64,
    /// Of learning from it once, at whatever age.
    pub learning: f64,
}

impl Cost {
    /// Of the rollout alone, the prompt read.
    pub fn rollout(&self) -> f64 {
        self.answering + self.learning
    }
}

/// What a token takes, in floating-point operations: on average over a run's prompts with the longest answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenCosts {
    /// Of reading a prompt.
    pub reading: f64,
    /// Of generating an answer.
    pub generating: f64,
    /// Of learning from an answer.
    pub learning: f64,
}

impl TokenCosts {
    /// Over prompts of these lengths, of which each costs so much with an answer of the longest length.
    pub fn over(lengths: &[u32], longest: u32, cost: impl Fn(PromptId, u32) -> Cost) -> Self {
        let mut sum = Self::default();
        for prompt in (0..lengths.len() as u32).map(PromptId) {
            let cost = cost(prompt, longest);
            sum.reading += cost.reading;
            sum.generating += cost.answering;
            sum.learning += cost.learning;
        }
        let read: f64 = lengths.iter().map(|length| f64::from(*length)).sum();
        let answered = lengths.len() as f64 * f64::from(longest);
        Self {
            reading: sum.reading / read.max(1.0),
            generating: sum.generating / answered.max(1.0),
            learning: sum.learning / answered.max(1.0),
        }
    }

    /// Of a model of which no more is known than how many parameters compute a token, and so many passes over what is
    /// learned from: 2 operations for each parameter and token forward, 4 backward (Kaplan et al. 2020, 2.1). Learning
    /// from an answer reads its prompt, too.
    pub fn of_parameters(parameters: u64, passes: u32, lengths: &[u32], longest: u32) -> Self {
        let forward = |tokens: f64| 2.0 * parameters as f64 * tokens;
        Self::over(lengths, longest, |prompt, tokens| {
            let (read, answered) = (f64::from(lengths[prompt.0 as usize]), f64::from(tokens));
            let learning = 3.0 * f64::from(passes) * forward(read + answered);
            Cost { reading: forward(read), answering: forward(answered), learning }
        })
    }

    /// Whether nothing is computed, or it is unknown.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits in measures that the ledger does not count. Floating-point operations are known before they are made, so their
/// limit is never exceeded. Seconds are estimated from the rate so far, so the last sampling or update may exceed theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Floating-point operations in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// Seconds of the run's steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Ceilings {
    /// Whether there is none.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}
