//! `[update.loss]` of a config.

use serde::{Deserialize, Serialize};

/// The kind of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// Clipped ratios. Mean over an answer's tokens, then over answers (Shao et al. 2024).
    Grpo,
    /// Clipped ratios. Sum over an answer's tokens, divided by the length limit (Liu et al. 2025).
    DrGrpo,
    /// Clipped ratios with a higher upper bound. Mean over all tokens (Yu et al. 2025).
    Dapo,
    /// One clipped ratio per answer: the geometric mean of its tokens' ratios (Zheng et al. 2025).
    Gspo,
    /// The policy gradient of every token, weighted by its ratio, which is clipped above and carries no
    /// gradient (MiniMax 2025).
    Cispo,
    /// One clipped ratio per answer: the product of its tokens' ratios (Ahmadian et al. 2024, as in TRL).
    /// Meant for advantages relative to the mean of the other rollouts.
    Rloo,
}

/// A policy loss. Missing numbers default to those of its paper or its authors' code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// The kind of loss.
    pub kind: LossKind,
    /// Lower clip: ratios are clipped at `1 - clip_low`.
    pub clip_low: Option<f64>,
    /// Upper clip: ratios are clipped at `1 + clip_high`.
    pub clip_high: Option<f64>,
    /// Upper bound of a ratio if the advantage is negative (dual clip, Ye et al. 2020); 0 for none.
    pub dual_clip: Option<f64>,
    /// Weight of the KL penalty against the reference, estimated by `exp(d) - d - 1` with `d = reference -
    /// new` (Schulman's k3).
    #[serde(default)]
    pub kl: f64,
    /// Weight of the entropy bonus, over the distributions that tokens are sampled from.
    #[serde(default, skip_serializing_if = "is_none")]
    pub entropy: f64,
}

/// Returns whether a weight is 0.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_none(weight: &f64) -> bool {
    *weight == 0.0
}

/// The clip bounds, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Lower clip: ratios are clipped at `1 - low`.
    pub low: f64,
    /// Upper clip: ratios are clipped at `1 + high`.
    pub high: f64,
    /// Upper bound of a ratio if the advantage is negative.
    pub dual: Option<f64>,
}

impl LossConfig {
    /// Returns a loss with its default numbers.
    pub fn of(kind: LossKind) -> Self {
        Self { kind, clip_low: None, clip_high: None, dual_clip: None, kl: 0.0, entropy: 0.0 }
    }

    /// Returns whether an answer with advantage 0 has a gradient, from a KL penalty or an entropy bonus.
    pub fn teaches_without_advantage(&self) -> bool {
        self.kl > 0.0 || self.entropy != 0.0
    }

    /// Returns the clip bounds: those given, else 0.2 on both sides. DAPO has 0.28 above and verl's dual
    /// clip of 3, GSPO 3e-4 and 4e-4, and CISPO 0.28 above and no lower bound.
    pub fn bounds(&self) -> Bounds {
        let (low, high, dual) = match self.kind {
            LossKind::Grpo | LossKind::DrGrpo | LossKind::Rloo => (0.2, 0.2, 0.0),
            LossKind::Dapo => (0.2, 0.28, 3.0),
            LossKind::Gspo => (3e-4, 4e-4, 0.0),
            LossKind::Cispo => (1.0, 0.28, 0.0),
        };
        Bounds {
            low: self.clip_low.unwrap_or(low),
            high: self.clip_high.unwrap_or(high),
            dual: Some(self.dual_clip.unwrap_or(dual)).filter(|d| *d > 0.0),
        }
    }

    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let b = self.bounds();
        let dual = self.dual_clip.unwrap_or(0.0);
        [
            ("clip_low", b.low, "expected 0 to 1", (0.0..=1.0).contains(&b.low)),
            ("clip_high", b.high, "expected 0 or more", b.high >= 0.0),
            ("dual_clip", dual, "expected more than 1, or 0 to turn it off", dual == 0.0 || dual > 1.0),
            ("kl", self.kl, "expected 0 or more", self.kl >= 0.0),
            ("entropy", self.entropy, "expected a finite number", true),
        ]
        .into_iter()
        .find(|(_, value, _, good)| !(*good && value.is_finite()))
        .map(|(key, value, rule, _)| (key, value, rule))
    }
}
