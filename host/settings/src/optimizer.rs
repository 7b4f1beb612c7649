//! `[optimizer]` of a config, and the learning rate over a run.

use serde::{Deserialize, Serialize};

/// AdamW (Loshchilov and Hutter 2019) with warm-up and a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// The peak learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; each step multiplies a weight by `1 - rate * weight_decay`.
    pub weight_decay: f64,
    /// Global norm to which gradients are clipped; 0 for no clipping.
    pub max_norm: f64,
    /// Optimizer steps of the linear warm-up.
    pub warmup: u32,
    /// The schedule after the warm-up.
    pub schedule: Schedule,
    /// The rate at the end of a linear or cosine schedule, as a share of the peak.
    pub final_share: f64,
}

/// The learning rate's schedule after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays at the peak.
    Constant,
    /// Falls linearly to the end of the run.
    Linear,
    /// Falls along half a cosine to the end of the run.
    Cosine,
}

impl Default for OptimizerConfig {
    /// verl's defaults, except for the learning rate, which depends on the model.
    fn default() -> Self {
        Self {
            learning_rate: 1e-6,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
            warmup: 0,
            schedule: Schedule::Constant,
            final_share: 0.0,
        }
    }
}

impl OptimizerConfig {
    /// Returns the learning rate of the next optimizer step, after `made` steps. `progress` is the finished
    /// share of the run, from 0 to 1.
    pub fn rate(&self, made: u32, progress: f64) -> f64 {
        let warm =
            if made < self.warmup { (f64::from(made) + 1.0) / (f64::from(self.warmup) + 1.0) } else { 1.0 };
        let left = 1.0 - progress.clamp(0.0, 1.0);
        let share = match self.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => left,
            Schedule::Cosine => 0.5 - 0.5 * libm::cos(std::f64::consts::PI * left),
        };
        self.learning_rate * warm * (self.final_share + (1.0 - self.final_share) * share)
    }

    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        [
            ("learning_rate", self.learning_rate, "expected 0 or more", self.learning_rate >= 0.0),
            ("beta1", self.beta1, "expected at least 0 and below 1", self.beta1 >= 0.0 && self.beta1 < 1.0),
            ("beta2", self.beta2, "expected at least 0 and below 1", self.beta2 >= 0.0 && self.beta2 < 1.0),
            ("epsilon", self.epsilon, "expected more than 0", self.epsilon > 0.0),
            ("weight_decay", self.weight_decay, "expected 0 or more", self.weight_decay >= 0.0),
            ("max_norm", self.max_norm, "expected 0 or more", self.max_norm >= 0.0),
            ("final_share", self.final_share, "expected 0 to 1", share(self.final_share)),
        ]
        .into_iter()
        .find(|(_, value, _, good)| !(*good && value.is_finite()))
        .map(|(key, value, rule, _)| (key, value, rule))
    }
}
