//! AdamW over tensors (Loshchilov and Hutter 2019): float32 weights and moments, whatever the model
//! computes in; the same arithmetic as PyTorch's, and as the CPU core's.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};

use super::pass::Gradients;
use crate::OptimizerConfig;

/// The optimizer's moments.
#[derive(Default)]
pub struct Moments {
    /// Steps made.
    pub steps: u32,
    /// By each weight's name the decayed means of its gradients and of their squares. Empty before the
    /// first step.
    pub of: BTreeMap<String, (Tensor, Tensor)>,
}

impl Moments {
    /// One step on these weights, in place. A weight without a gradient has one of zero. Gives the norm of
    /// all gradients before they were cut; where that is not finite nothing changes.
    pub fn step(
        &mut self,
        weights: &BTreeMap<String, Var>,
        mut gradients: Gradients,
        c: &OptimizerConfig,
        rate: f64,
    ) -> Result<f64> {
        let norm = norm(&gradients)?;
        if !norm.is_finite() {
            return Ok(norm);
        }
        // PyTorch's clip_grad_norm_: the small number keeps an all-zero gradient what it is.
        let cut = if c.max_norm > 0.0 { (c.max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
        self.steps += 1;
        let steps = self.steps as i32;
        let (fix1, fix2) = (1.0 - c.beta1.powi(steps), 1.0 - c.beta2.powi(steps));
        for (name, weight) in weights {
            let gradient = match gradients.remove(name) {
                Some(gradient) => (gradient * cut)?,
                None => weight.zeros_like()?,
            };
            let (mean, square) = match self.of.remove(name) {
                Some(moments) => moments,
                None => (weight.zeros_like()?, weight.zeros_like()?),
            };
            let mean = ((mean * c.beta1)? + (&gradient * (1.0 - c.beta1))?)?;
            let square = ((square * c.beta2)? + (gradient.sqr()? * (1.0 - c.beta2))?)?;
            drop(gradient);
            let root = ((square.sqrt()? * fix2.sqrt().recip())? + c.epsilon)?;
            let kept = (weight.as_detached_tensor() * (1.0 - rate * c.weight_decay))?;
            weight.set(&(kept - ((&mean / root)? * (rate / fix1))?)?)?;
            self.of.insert(name.clone(), (mean, square));
        }
        Ok(norm)
    }
}

/// The norm of all gradients together. One number comes to the host, not one for each tensor.
fn norm(gradients: &Gradients) -> Result<f64> {
    let squares = gradients.values().map(|g| g.sqr()?.sum_all()).collect::<Result<Vec<_>>>()?;
    if squares.is_empty() {
        return Ok(0.0);
    }
    let squares = Tensor::stack(&squares, 0)?.to_vec1::<f32>()?;
    Ok(squares.iter().map(|s| f64::from(*s)).sum::<f64>().sqrt())
}
