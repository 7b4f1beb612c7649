//! Compute spent by a run, and limits on it.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::PromptId;

/// Compute spent by an engine, in measures that the ledger does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Prompt tokens processed for sampling. A prompt processed once for several answers counts once.
    pub prompt_tokens: u64,
    /// Tokens of environments that were read between the turns of episodes.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub read_tokens: u64,
    /// Answer tokens trained on, counted once per pass. Rollouts that were skipped because their advantage
    /// is 0 are not included.
    pub trained_tokens: u64,
    /// Optimizer steps.
    pub optimizer_steps: u64,
    /// Floating-point operations.
    pub flops: Flops,
}

/// Floating-point operations. A multiply-add counts as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// For prompt processing.
    pub prefill: f64,
    /// For generating answers.
    pub decode: f64,
    /// For training, including log-probabilities computed for it.
    pub training: f64,
}

impl Flops {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.prefill + self.decode + self.training
    }
}

impl Compute {
    /// Returns whether nothing was computed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Compute {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.read_tokens += other.read_tokens;
        self.trained_tokens += other.trained_tokens;
        self.optimizer_steps += other.optimizer_steps;
        self.flops.prefill += other.flops.prefill;
        self.flops.decode += other.flops.decode;
        self.flops.training += other.flops.training;
    }
}

/// The maximum cost of one rollout of a prompt, in floating-point operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processing the prompt. Counted once for all rollouts of the prompt in a grant.
    pub reading: f64,
    /// Generating the answer.
    pub answering: f64,
    /// Training on the rollout once, at any age.
    pub learning: f64,
}

impl Cost {
    /// Returns the cost of the rollout without its prompt.
    pub fn rollout(&self) -> f64 {
        self.answering + self.learning
    }
}

/// The cost of a token, in floating-point operations: mean over a run's prompts with the longest answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenCosts {
    /// Of processing a prompt.
    pub reading: f64,
    /// Of generating an answer.
    pub generating: f64,
    /// Of training on an answer.
    pub learning: f64,
}

impl TokenCosts {
    /// Returns the means over prompts of these lengths. `cost` takes a prompt and its answer's length.
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

    /// Returns the costs for a model with `parameters` active parameters and `passes` passes over each
    /// batch: 2 operations per parameter and token forward, 4 backward (Kaplan et al. 2020, section 2.1).
    /// Training on an answer includes its prompt.
    pub fn of_parameters(parameters: u64, passes: u32, lengths: &[u32], longest: u32) -> Self {
        let forward = |tokens: f64| 2.0 * parameters as f64 * tokens;
        Self::over(lengths, longest, |prompt, tokens| {
            let (read, answered) = (f64::from(lengths[prompt.0 as usize]), f64::from(tokens));
            let learning = 3.0 * f64::from(passes) * forward(read + answered);
            Cost { reading: forward(read), answering: forward(answered), learning }
        })
    }

    /// Returns whether all costs are 0, because nothing is computed or the costs are unknown.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits in measures that the ledger does not count. FLOPs are known in advance, so their limit is never
/// exceeded. Seconds are estimated from the rate so far; the last sampling or update may exceed theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Floating-point operations in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// Seconds, summed over the run's steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Ceilings {
    /// Returns whether there is no limit.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}
