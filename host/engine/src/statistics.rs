//! Statistics of a token under the model, from its logits.

use crate::cpu::kernels::{exp, largest, sum, wide};

/// Log-probability of a token and entropy of its distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenStatistics {
    /// Its log-probability.
    pub log_prob: f32,
    /// The entropy of the distribution that it was drawn from, in nats.
    pub entropy: f32,
}

impl TokenStatistics {
    /// Returns a token's log-probability under these logits, and their entropy.
    pub(crate) fn of(logits: &[f32], token: usize) -> Self {
        let (top, total, mean) = wide(
            #[inline(always)]
            || {
                let top = largest(logits);
                // Small parts keep the sums precise without allocation.
                let (mut total, mut mean) = (0.0_f64, 0.0_f64);
                for part in logits.chunks(512) {
                    let (mut weights, mut products) = ([0.0_f32; 512], [0.0_f32; 512]);
                    for ((w, p), l) in weights.iter_mut().zip(&mut products).zip(part) {
                        *w = exp(l - top);
                        *p = *w * (l - top);
                    }
                    total += f64::from(sum(&weights[..part.len()]));
                    mean += f64::from(sum(&products[..part.len()]));
                }
                (top, total, mean)
            },
        );
        let log_total = libm::log(total);
        Self {
            log_prob: (f64::from(logits[token] - top) - log_total) as f32,
            entropy: (log_total - mean / total) as f32,
        }
    }
}
