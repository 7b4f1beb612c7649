//! AdamW with decoupled weight decay (Loshchilov and Hutter 2019), and clipping of the gradient's
//! norm; the same arithmetic as PyTorch's.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// The optimizer's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Learning rate.
    pub rate: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of the second.
    pub epsilon: f64,
    /// Share of a weight that goes at each step, times the rate.
    pub decay: f64,
    /// The norm that all gradients together are cut to.
    pub clip: f64,
}

/// The optimizer and its moments.
#[derive(Debug)]
pub struct AdamW {
    config: AdamWConfig,
    steps: i32,
    moments: BTreeMap<String, (Tensor, Tensor)>,
}

impl AdamW {
    /// A fresh optimizer.
    pub fn new(config: AdamWConfig) -> Self {
        Self { config, steps: 0, moments: BTreeMap::new() }
    }

    /// One step on these weights, in place. Gives the norm of all gradients before they were cut. A
    /// weight without a gradient stays as it is.
    pub fn step(&mut self, weights: &BTreeMap<String, Var>, gradients: &GradStore) -> Result<f64> {
        let c = self.config;
        let mut squares = 0.0;
        for var in weights.values() {
            if let Some(gradient) = gradients.get(var) {
                squares += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
            }
        }
        let norm = squares.sqrt();
        // PyTorch's clip_grad_norm_: the small number keeps an all-zero gradient what it is.
        let scale = (c.clip / (norm + 1e-6)).min(1.0);
        self.steps += 1;
        let (fix1, fix2) = (1.0 - c.beta1.powi(self.steps), 1.0 - c.beta2.powi(self.steps));
        for (name, var) in weights {
            let Some(gradient) = gradients.get(var) else { continue };
            let gradient = (gradient * scale)?;
            let (mean, square) = match self.moments.remove(name) {
                Some(moments) => moments,
                None => (gradient.zeros_like()?, gradient.zeros_like()?),
            };
            let mean = ((mean * c.beta1)? + (&gradient * (1.0 - c.beta1))?)?;
            let square = ((square * c.beta2)? + (gradient.sqr()? * (1.0 - c.beta2))?)?;
            let step = ((&mean / fix1)? / ((&square / fix2)?.sqrt()? + c.epsilon)?)?;
            let decayed = (var.as_detached_tensor() * (1.0 - c.rate * c.decay))?;
            var.set(&(decayed - (step * c.rate)?)?)?;
            self.moments.insert(name.clone(), (mean, square));
        }
        Ok(norm)
    }
}
