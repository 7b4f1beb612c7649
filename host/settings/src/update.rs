//! `[update]` of a config: how a batch of rollouts becomes optimizer steps.

use allot_allocation::Geometry;
use serde::{Deserialize, Serialize};

use crate::loss::{LossConfig, LossKind};

/// How updates are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// The loss.
    pub loss: LossConfig,
    /// Rollouts in each optimizer step; 0 for all of the batch in one. Counted in rollouts and not in
    /// prompts, so that policies with groups of other sizes make steps of one size.
    pub mini_batch: usize,
    /// Passes over the batch.
    pub epochs: u32,
    /// Whether a policy may say how its batch is cut into optimizer steps, and make fewer passes over it.
    pub by_policy: bool,
    /// What ratios are measured from.
    pub old_log_probs: Old,
    /// The most that an importance weight counts, for rollouts sampled at earlier weights or elsewhere.
    pub correction: f64,
    /// Tokens in a micro-batch, as many as memory allows: no result depends on it but by rounding.
    pub micro_batch_tokens: usize,
    /// Make activations again in the backward pass: a third more work, and memory for one block in
    /// place of all.
    pub recompute: bool,
    /// Whether answers that met their length limit teach nothing (DAPO's overlong filtering, Yu et al. 2025). As TRL's
    /// `mask_truncated_completions`: they have their part in baselines, and in means over answers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mask_truncated: bool,
    /// Whether the tokens that top-k and top-p left are kept with a rollout, and learned at the distribution among them,
    /// from which it came (DeepSeek-V3.2, arXiv 2512.02556, section 3.1).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_sampling_mask: bool,
}

/// What ratios between new and old probabilities are measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Old {
    /// For rollouts of the weights of now, the log-probabilities that sampling gave. For those of earlier weights, or
    /// of another engine, the trainer's own of now are computed, ratios measured from them, and the difference counts
    /// as an importance weight, which is cut. The default: it is exact, and saves a pass over the fresh ones
    /// (Hilton et al. 2022; AReaL, Fu et al. 2025).
    Decoupled,
    /// The log-probabilities that sampling gave, for all rollouts: what was sampled at earlier weights is clipped by how
    /// far it has moved since, and has no importance weight. As PPO has it, and TRL.
    Sampling,
    /// Log-probabilities under the weights of now, for all rollouts, and no importance weights: as
    /// the papers' trainer does.
    Recomputed,
}

impl Old {
    /// Whether the log-probabilities of a rollout under the weights of now are computed before an update: where ratios
    /// are measured from them, or for those of another engine to be held against them.
    pub fn is_computed(self, stale: bool, foreign: bool) -> bool {
        match self {
            Self::Decoupled => stale || foreign,
            Self::Sampling => foreign && !stale,
            Self::Recomputed => true,
        }
    }

    /// The same, of a rollout whose age is not known: whether that may be.
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
    /// Whether an answer has no part in the loss, and its tokens none in means over tokens.
    pub fn masks(&self, truncated: bool) -> bool {
        self.mask_truncated && truncated
    }

    /// This, cut into optimizer steps as a batch says, where it does.
    pub fn cut(self, geometry: Option<Geometry>) -> Self {
        match geometry {
            Some(Geometry { mini_batch, passes }) => {
                Self { mini_batch: mini_batch as usize, epochs: passes, ..self }
            }
            None => self,
        }
    }
}
