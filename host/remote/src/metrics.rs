//! The metrics of an update on a server, with the native engine's names.

use allot_engine::Report;
use allot_engine::loss::Part;

use crate::learn::TrainingSample;

/// Sums over an update's optimizer steps.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Number of optimizer steps.
    pub(crate) steps: u32,
    loss: f64,
    norm: f64,
    norms: u32,
    rate: f64,
    tokens: f64,
    low: f64,
    high: f64,
    weights: f64,
    /// Sum of absolute differences of trainer's and sampler's log-probabilities, for current rollouts.
    apart: f64,
    compared: f64,
}

impl Metrics {
    /// Adds a rollout's part of a loss, and the trainer's log-probabilities of its tokens.
    pub(crate) fn add(&mut self, part: &Part, lesson: &TrainingSample, new: &[f32]) {
        self.tokens += new.len() as f64;
        self.low += part.clipped_low as f64;
        self.high += part.clipped_high as f64;
        self.weights += part.weights;
        if self.steps == 0 && !lesson.anew && !lesson.stale {
            self.apart += new.iter().zip(&lesson.sampled).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>();
            self.compared += new.len() as f64;
        }
    }

    /// Adds an optimizer step.
    pub(crate) fn step(&mut self, loss: f64, norm: Option<f64>, rate: f64) {
        self.steps += 1;
        self.loss += loss;
        self.norm += norm.unwrap_or_default();
        self.norms += u32::from(norm.is_some());
        self.rate = rate;
    }

    /// Returns the metrics under TRL's names, like the native engine, except those that the server lacks.
    pub(crate) fn report(&self) -> Report {
        let tokens = self.tokens.max(1.0);
        let mut metrics = vec![
            ("loss", self.loss / f64::from(self.steps.max(1))),
            ("learning_rate", self.rate),
            ("clip_ratio/low_mean", self.low / tokens),
            ("clip_ratio/high_mean", self.high / tokens),
            ("clip_ratio/region_mean", (self.low + self.high) / tokens),
            ("sampling/importance_sampling_ratio/mean", self.weights / tokens),
            ("optimizer_steps", f64::from(self.steps)),
        ];
        if self.norms > 0 {
            metrics.push(("grad_norm", self.norm / f64::from(self.norms)));
        }
        if self.compared > 0.0 {
            metrics.push(("sampling/sampling_logp_difference/mean", self.apart / self.compared));
        }
        Report { metrics }
    }
}
