//! AdamW over tensors (Loshchilov and Hutter 2019): float32 weights and moments for every
//! number format of the model. The arithmetic is that of PyTorch and of the CPU core.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};

use super::learning::{Learning, Rates, Trained};
use crate::OptimizerConfig;

/// The optimizer's moments.
#[derive(Default)]
pub struct Moments {
    /// Steps made.
    pub steps: u32,
    /// Decayed means of the gradients and of their squares, by weight name. Empty before the first step.
    pub of: BTreeMap<String, (Tensor, Tensor)>,
}

impl Moments {
    /// Makes one step on these weights and their copies, in place. A missing gradient counts as zero.
    /// Returns the norm of all gradients before clipping. If the norm is not finite, nothing changes.
    pub fn step(
        &mut self,
        learning: &dyn Learning,
        weights: &BTreeMap<String, Var>,
        copies: Option<&BTreeMap<String, Var>>,
        mut gradients: BTreeMap<String, Tensor>,
        (c, rate): (&OptimizerConfig, f64),
    ) -> Result<f64> {
        let norm = learning.squares(&gradients.values().collect::<Vec<_>>())?.sqrt();
        if !norm.is_finite() {
            return Ok(norm);
        }
        self.steps += 1;
        let steps = self.steps as i32;
        let rates = Rates {
            // As in PyTorch's `clip_grad_norm_`; the 1e-6 keeps an all-zero gradient unchanged.
            cut: if c.max_norm > 0.0 { (c.max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 },
            betas: (c.beta1, c.beta2),
            root: (1.0 - c.beta2.powi(steps)).sqrt().recip(),
            epsilon: c.epsilon,
            keep: 1.0 - rate * c.weight_decay,
            rate: rate / (1.0 - c.beta1.powi(steps)),
        };
        for (name, master) in weights {
            let gradient = gradients.remove(name);
            let moments = match self.of.remove(name) {
                Some(moments) => moments,
                None => (master.zeros_like()?, master.zeros_like()?),
            };
            let copy = copies.and_then(|copies| copies.get(name));
            let weight = Trained { master, copy, gradient: gradient.as_ref() };
            self.of.insert(name.clone(), learning.adamw(weight, moments, &rates)?);
        }
        Ok(norm)
    }
}
