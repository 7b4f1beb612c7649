//! AdamW over one list of numbers, in place (Loshchilov and Hutter 2019). The arithmetic is
//! PyTorch's, and `tests/core.rs` compares a step with it.

use rayon::prelude::*;

use super::kernels::wide;
use crate::optimizer::{Moments, OptimizerConfig};

/// Chunk size. Sums are made of chunks in order, so that they do not depend on the number of threads.
const PART: usize = 1 << 14;

impl Moments {
    /// Makes one step on these weights with the sum of all gradients, which are zero afterwards.
    /// Returns the norm before clipping. If the norm is not finite, only the gradients change.
    pub fn step(
        &mut self,
        weights: &mut [f32],
        gradients: &mut [Vec<f32>],
        c: &OptimizerConfig,
        rate: f64,
    ) -> f64 {
        let Some((gradient, others)) = gradients.split_first_mut() else { return 0.0 };
        for other in others {
            gradient.par_chunks_mut(PART).zip(other.par_chunks_mut(PART)).for_each(|(sum, more)| {
                for (s, m) in sum.iter_mut().zip(more) {
                    *s += *m;
                    *m = 0.0;
                }
            });
        }
        let squares: Vec<f64> = gradient
            .par_chunks(PART)
            .map(|part| part.iter().map(|g| f64::from(*g) * f64::from(*g)).sum())
            .collect();
        let norm = squares.iter().sum::<f64>().sqrt();
        if !norm.is_finite() {
            gradient.fill(0.0);
            return norm;
        }
        // As in PyTorch's `clip_grad_norm_`; the 1e-6 keeps an all-zero gradient unchanged.
        let cut = if c.max_norm > 0.0 { (c.max_norm / (norm + 1e-6)).min(1.0) as f32 } else { 1.0 };
        self.steps += 1;
        self.means.resize(weights.len(), 0.0);
        self.squares.resize(weights.len(), 0.0);
        let steps = self.steps as i32;
        let (fix1, fix2) = (1.0 - c.beta1.powi(steps), 1.0 - c.beta2.powi(steps));
        let (beta1, beta2) = (c.beta1 as f32, c.beta2 as f32);
        let (rate_now, root) = ((rate / fix1) as f32, fix2.sqrt().recip() as f32);
        let (keep, epsilon) = ((1.0 - rate * c.weight_decay) as f32, c.epsilon as f32);
        weights
            .par_chunks_mut(PART)
            .zip(gradient.par_chunks_mut(PART))
            .zip(self.means.par_chunks_mut(PART))
            .zip(self.squares.par_chunks_mut(PART))
            .for_each(|(((w, g), m), v)| {
                wide(
                    #[inline(always)]
                    || {
                        for (((w, g), m), v) in
                            w.iter_mut().zip(g.iter_mut()).zip(m.iter_mut()).zip(v.iter_mut())
                        {
                            let gradient = *g * cut;
                            *g = 0.0;
                            *m = beta1 * *m + (1.0 - beta1) * gradient;
                            *v = beta2 * *v + (1.0 - beta2) * gradient * gradient;
                            *w = *w * keep - rate_now * *m / (v.sqrt() * root + epsilon);
                        }
                    },
                );
            });
        norm
    }
}
