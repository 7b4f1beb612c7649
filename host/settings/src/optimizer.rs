//! `[optimizer]` of a config, and the learning rate over a run.

use serde::{Deserialize, Serialize};

/// AdamW with decoupled decay (Loshchilov and Hutter 2019), a warm-up and a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of the second.
    pub epsilon: f64,
    /// Share of a weight that goes at each step, times the rate.
    pub weight_decay: f64,
    /// The norm that all gradients together are cut to; 0 for none.
    pub max_norm: f64,
    /// Optimizer steps over which the rate rises from 0.
    pub warmup: u32,
    /// How the rate goes on.
    pub schedule: Schedule,
    /// The rate at the end of a schedule that falls, as a share of the highest.
    pub final_share: f64,
}

/// How the learning rate goes on after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays.
    Constant,
    /// Falls in a straight line to the end of the run.
    Linear,
    /// Falls along half a cosine.
    Cosine,
}

impl Default for OptimizerConfig {
    /// The numbers of the papers' trainer (verl), but for the rate, which belongs to a model.
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
    /// The rate of the next step: `made` were made before it; `progress` is the share of the run that
    /// is over, 0 to 1.
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

    /// The first key whose value makes no sense, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        [
            ("learning_rate", self.learning_rate, "it is 0 or more", self.learning_rate >= 0.0),
            ("beta1", self.beta1, "it is from 0 to less than 1", self.beta1 >= 0.0 && self.beta1 < 1.0),
            ("beta2", self.beta2, "it is from 0 to less than 1", self.beta2 >= 0.0 && self.beta2 < 1.0),
            ("epsilon", self.epsilon, "it is more than 0", self.epsilon > 0.0),
            ("weight_decay", self.weight_decay, "it is 0 or more", self.weight_decay >= 0.0),
            ("max_norm", self.max_norm, "it is 0 or more", self.max_norm >= 0.0),
            ("final_share", self.final_share, "it is from 0 to 1", share(self.final_share)),
        ]
        .into_iter()
        .find(|(_, value, _, good)| !(*good && value.is_finite()))
        .map(|(key, value, rule, _)| (key, value, rule))
    }
}
