//! `[sampling]` of a config: how tokens are sampled.

use allot_allocation::SamplerSettings;
use serde::{Deserialize, Serialize};

/// Sampling settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Divisor of the logits. At 0, the most likely token is taken.
    pub temperature: f32,
    /// Sample from this many of the most likely tokens; 0 for all.
    pub top_k: usize,
    /// Sample from the most likely tokens that together have this probability; 1 for all.
    pub top_p: f32,
    /// Length limit of an answer, in tokens.
    pub max_tokens: u32,
    /// Whether an answer stores the tokens left by top-k and top-p, and its log-probabilities are among
    /// these tokens. Not a key: set by `update.keep_sampling_mask`.
    #[serde(skip)]
    pub keep_mask: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, max_tokens: 256, keep_mask: false }
    }
}

impl Sampling {
    /// Returns these settings with a request's own temperature and length limit.
    pub fn with(self, own: Option<SamplerSettings>) -> Self {
        own.map_or(self, |own| Self {
            temperature: own.temperature,
            max_tokens: own.max_tokens.min(self.max_tokens),
            ..self
        })
    }

    /// Returns the settings that a request may change.
    pub fn settings(&self) -> SamplerSettings {
        SamplerSettings { temperature: self.temperature, max_tokens: self.max_tokens, max_turns: 1 }
    }

    /// Returns the divisor of logits: 1 at temperature 0.
    pub fn divisor(&self) -> f32 {
        if self.temperature == 0.0 { 1.0 } else { self.temperature }
    }

    /// Returns whether top-k or top-p excludes tokens.
    pub fn cuts(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0
    }
}
