//! The policy loss of an update.

use serde::{Deserialize, Serialize};

/// Which loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// Clipped ratios, the mean over an answer's tokens, then over answers (Shao et al. 2024).
    Grpo,
    /// Clipped ratios, the sum over an answer's tokens over the length limit (Liu et al. 2025).
    DrGrpo,
    /// Clipped ratios, the mean over all tokens, with the upper bound further off (Yu et al. 2025).
    Dapo,
    /// One clipped ratio for a whole answer, the geometric mean of its tokens' (Zheng et al. 2025).
    Gspo,
    /// The gradient of every token, weighted by its ratio, which is cut above and not learned
    /// through (MiniMax 2025).
    Cispo,
    /// One clipped ratio for a whole answer, the product of its tokens' (Ahmadian et al. 2024, as TRL
    /// has it). Meant for advantages against the mean of the other rollouts.
    Rloo,
}

/// A loss and its numbers. What is not given has the default of its paper or its authors' code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Which loss.
    pub kind: LossKind,
    /// How far below 1 a ratio may go.
    pub clip_low: Option<f64>,
    /// How far above 1.
    pub clip_high: Option<f64>,
    /// The most that a ratio counts where the advantage is negative (Ye et al. 2020); 0 for no such
    /// bound.
    pub dual_clip: Option<f64>,
    /// Weight of the divergence from the reference, measured by `exp(d) - d - 1` for
    /// `d = reference - new` (Schulman's k3).
    #[serde(default)]
    pub kl: f64,
    /// Weight of the entropy bonus: of the entropy of the distributions that tokens come from.
    #[serde(default, skip_serializing_if = "is_none")]
    pub entropy: f64,
}

/// Whether a weight is that of nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_none(weight: &f64) -> bool {
    *weight == 0.0
}

/// The bounds in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How far below 1 a ratio may go.
    pub low: f64,
    /// How far above 1.
    pub high: f64,
    /// The most that a ratio counts where the advantage is negative.
    pub dual: Option<f64>,
}

impl LossConfig {
    /// A loss with its own numbers.
    pub fn of(kind: LossKind) -> Self {
        Self { kind, clip_low: None, clip_high: None, dual_clip: None, kl: 0.0, entropy: 0.0 }
    }

    /// Whether an answer without an advantage teaches something, too.
    pub fn teaches_without_advantage(&self) -> bool {
        self.kl > 0.0 || self.entropy != 0.0
    }

    /// The bounds in force: those given, else 0.2 on both sides; DAPO's 0.28 above and verl's dual
    /// clip of 3; GSPO's 3e-4 and 4e-4; for CISPO no bound below.
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

    /// The first key whose value makes no sense, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let b = self.bounds();
        let dual = self.dual_clip.unwrap_or(0.0);
        [
            ("clip_low", b.low, "it is from 0 to 1", (0.0..=1.0).contains(&b.low)),
            ("clip_high", b.high, "it is 0 or more", b.high >= 0.0),
            ("dual_clip", dual, "it is more than 1, or 0 for none", dual == 0.0 || dual > 1.0),
            ("kl", self.kl, "it is 0 or more", self.kl >= 0.0),
            ("entropy", self.entropy, "it is a finite number", true),
        ]
        .into_iter()
        .find(|(_, value, _, good)| !(*good && value.is_finite()))
        .map(|(key, value, rule, _)| (key, value, rule))
    }
}
