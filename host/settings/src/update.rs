//! `[update]` of a config: how a batch of rollouts is trained on.

use std::ops::Range;

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
    /// Instead, generated tokens in each optimizer step, at most; 0 for no limit. Each rollout counts as in one step of the
    /// whole batch, whatever others it is cut with.
    #[serde(skip_serializing_if = "allot_allocation::is_zero")]
    pub mini_batch_tokens: usize,
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
            mini_batch_tokens: 0,
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
                Self { mini_batch: mini_batch as usize, mini_batch_tokens: 0, epochs: passes, ..self }
            }
            None => self,
        }
    }

    /// Returns the mini-batches of rollouts with these numbers of generated tokens, as ranges in their order.
    pub fn mini_batches(&self, tokens: &[usize]) -> Vec<Range<usize>> {
        let (mut all, mut from, mut sum) = (Vec::new(), 0, 0);
        for (i, more) in tokens.iter().enumerate() {
            let full = match (self.mini_batch_tokens, self.mini_batch) {
                (0, 0) => false,
                (0, most) => i - from == most,
                // A rollout that is longer is one by itself.
                (most, _) => i > from && sum + more > most,
            };
            if full {
                all.push(from..i);
                (from, sum) = (i, 0);
            }
            sum += more;
        }
        all.extend((from < tokens.len()).then_some(from..tokens.len()));
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn cut(mini_batch: usize, mini_batch_tokens: usize, tokens: &[usize]) -> Vec<usize> {
        let config = UpdateConfig { mini_batch, mini_batch_tokens, ..UpdateConfig::default() };
        let all = config.mini_batches(tokens);
        assert!(all.iter().flat_map(Clone::clone).eq(0..tokens.len()), "{all:?}");
        all.iter().map(ExactSizeIterator::len).collect()
    }

    #[test]
    fn mini_batches_by_tokens_keep_the_order_and_split_no_rollout() {
        for (most, tokens, expected) in [
            (10, vec![5, 5, 5], vec![2, 1]),
            (15, vec![5, 5, 5], vec![3]),
            (10, vec![3, 20, 3], vec![1, 1, 1]),
            (10, vec![20, 3, 3], vec![1, 2]),
            (10, vec![0, 10, 0, 1], vec![3, 1]),
            (1, vec![], vec![]),
        ] {
            assert_eq!(cut(0, most, &tokens), expected, "{tokens:?} by {most}");
        }
    }

    #[test]
    fn mini_batches_by_rollouts_are_chunks() {
        let tokens: Vec<usize> = (0..7).collect();
        for most in 1..9 {
            let chunks: Vec<usize> = tokens.chunks(most).map(<[usize]>::len).collect();
            assert_eq!(cut(most, 0, &tokens), chunks);
        }
        assert_eq!(cut(0, 0, &tokens), [7]);
    }

    #[test]
    fn what_is_not_limited_by_tokens_is_written_as_before() {
        let written = serde_json::to_string(&UpdateConfig::default()).unwrap();
        assert!(!written.contains("mini_batch_tokens"), "{written}");
        let by_tokens = UpdateConfig { mini_batch_tokens: 60, ..UpdateConfig::default() };
        let by_policy = by_tokens.cut(Some(Geometry { mini_batch: 4, passes: 2 }));
        assert_eq!((by_policy.mini_batch, by_policy.mini_batch_tokens, by_policy.epochs), (4, 0, 2));
    }
}
