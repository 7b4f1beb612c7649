//! `[rollout]` of a config: how tokens are drawn.

use allot_allocation::SamplerSettings;
use serde::{Deserialize, Serialize};

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// What logits are divided by. At 0 the likeliest token is taken.
    pub temperature: f32,
    /// Only this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens that together have this probability; 1 for all.
    pub top_p: f32,
    /// Longest answer, in tokens.
    pub max_tokens: u32,
    /// Whether the tokens that top-k and top-p leave are kept with an answer, and its log-probabilities are those among
    /// them. It is no key of its own: an update wants it, or not.
    #[serde(skip)]
    pub keep_mask: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, max_tokens: 256, keep_mask: false }
    }
}

impl Sampling {
    /// The same with what a request chooses of it.
    pub fn with(self, own: Option<SamplerSettings>) -> Self {
        own.map_or(self, |own| Self {
            temperature: own.temperature,
            max_tokens: own.max_tokens.min(self.max_tokens),
            ..self
        })
    }

    /// What a request may choose of it.
    pub fn settings(&self) -> SamplerSettings {
        SamplerSettings { temperature: self.temperature, max_tokens: self.max_tokens }
    }

    /// What logits are divided by: 1 where the likeliest token is taken.
    pub fn divisor(&self) -> f32 {
        if self.temperature == 0.0 { 1.0 } else { self.temperature }
    }

    /// Whether top-k or top-p leave tokens out.
    pub fn cuts(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0
    }
}
