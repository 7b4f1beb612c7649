//! `[update]` of a config: how a batch of rollouts is trained on.

use allot_allocation::Geometry;
use serde::{Deserialize, Serialize};

use crate::loss::{LossConfig, LossKind};

/// How updates are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// The loss.
    pub loss: LossConfig,
    /// Rollouts in each optimizer step; 0 for the whole batch. The unit is rollouts instead of prompts, so
    /// that steps have the same size for policies with other group sizes.
    pub mini_batch: usize,
    /// Passes over the batch.
    pub epochs: u32,
    /// Whether a policy may set the mini-batch size of its batch, and make fewer passes over it.
    pub by_policy: bool,
    /// The denominators of ratios.
    pub old_log_probs: Old,
    /// Upper bound of importance weights, for rollouts sampled at earlier weights or by another engine.
    pub correction: f64,
    /// Tokens in a micro-batch, as many as memory allows. Affects results only by rounding.
    pub micro_batch_tokens: usize,
    /// Whether to recompute activations in the backward pass (gradient checkpointing). Takes a third more
    /// compute, and memory for one block instead of all.
    pub recompute: bool,
    /// Whether to leave answers at the length limit out of the loss (DAPO's overlong filtering, Yu et al.
    /// 2025). As with TRL's `mask_truncated_completions`, they count in baselines and means over answers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mask_truncated: bool,
    /// Whether rollouts store the tokens left by top-k and top-p, and are trained on the distribution among
    /// these tokens, from which they were sampled (DeepSeek-V3.2, arXiv 2512.02556, section 3.1).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_sampling_mask: bool,
}

/// The old log-probabilities: the denominators of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Old {
    /// For rollouts sampled at the current weights: the sampler's log-probabilities. For rollouts of
    /// earlier weights or another engine: the trainer's current log-probabilities. Their difference from
    /// the sampler's becomes an importance weight with an upper bound. The default: exact, and saves a
    /// forward pass over fresh rollouts (Hilton et al. 2022; AReaL, Fu et al. 2025).
    Decoupled,
    /// The sampler's log-probabilities, for all rollouts, as in PPO and TRL. Rollouts of earlier weights
    /// are clipped by their total change since sampling and have no importance weight.
    Sampling,
    /// The trainer's log-probabilities under the current weights, for all rollouts, without importance
    /// weights, as in the papers' trainer.
    Recomputed,
}

impl Old {
    /// Returns whether log-probabilities under the current weights are computed before an update. They are
    /// the denominators of ratios, or a check of another engine's log-probabilities.
    pub fn is_computed(self, stale: bool, foreign: bool) -> bool {
        match self {
            Self::Decoupled => stale || foreign,
            Self::Sampling => foreign && !stale,
            Self::Recomputed => true,
        }
    }

    /// Returns the same for a rollout of unknown age: whether they may be computed.
    pub fn may_be_computed(self, foreign: bool) -> bool {
        [false, true].into_iter().any(|stale| self.is_computed(stale, foreign))
    }
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            loss: LossConfig::of(LossKind::Grpo),
            mini_batch: 0,
            epochs: 1,
            by_policy: true,
            old_log_probs: Old::Decoupled,
            correction: 2.0,
            micro_batch_tokens: 4096,
            recompute: false,
            mask_truncated: false,
            keep_sampling_mask: false,
        }
    }
}

impl UpdateConfig {
    /// Returns whether an answer is left out of the loss and of means over tokens.
    pub fn masks(&self, truncated: bool) -> bool {
        self.mask_truncated && truncated
    }

    /// Returns the config with a batch's geometry, if the batch has one.
    pub fn cut(self, geometry: Option<Geometry>) -> Self {
        match geometry {
            Some(Geometry { mini_batch, passes }) => {
                Self { mini_batch: mini_batch as usize, epochs: passes, ..self }
            }
            None => self,
        }
    }
}
