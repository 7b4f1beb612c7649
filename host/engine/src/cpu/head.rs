//! The head: from the stream to log-probabilities of the tokens that came, and back. The vocabulary
//! can be large, so logits are made for a few rows at a time and never kept.

use gemm::Parallelism;

use super::block::{Gradients, Weights, sized};
use super::kernels::{Mat, exp, largest, product, sum, wide};
use crate::core::Thought;

/// Logits at a time: rows times vocabulary.
const AT_ONCE: usize = 1 << 22;

/// The head of a model at a sampling temperature.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The model's numbers.
    pub weights: Weights<'a>,
    /// What logits are divided by before they become probabilities.
    pub temperature: f32,
    /// Threads of each matrix product.
    pub threads: Parallelism,
}

impl Head<'_> {
    /// What the model thinks of each target, after the final norm: `x` is `[R, D]`.
    pub fn think(&self, x: &[f32], targets: &[u32], logits: &mut Vec<f32>) -> Vec<Thought> {
        let mut thoughts = Vec::with_capacity(targets.len());
        self.each(x, targets, logits, |_, logits, target| {
            thoughts.push(thought(logits, target));
        });
        thoughts
    }

    /// The backward pass: from the gradient of each target's log-probability that of `x`, which is
    /// written over, and of the head.
    pub fn back(
        &self,
        x: &[f32],
        targets: &[u32],
        dlog_probs: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        logits: &mut Vec<f32>,
    ) {
        let (v, d) = (self.weights.arena.shape.vocabulary, self.weights.arena.shape.hidden);
        let place = &self.weights.arena.head;
        let chunk = self.rows();
        for (i, (x, targets)) in x.chunks(chunk * d).zip(targets.chunks(chunk)).enumerate() {
            let dlog_probs = &dlog_probs[i * chunk..][..targets.len()];
            let n = targets.len();
            // The gradient takes the logits' place.
            self.each(x, targets, logits, |row, logits, target| {
                let thought = thought(logits, target);
                let log_sum = logits[target] - thought.log_prob;
                let scale = dlog_probs[row] / self.temperature;
                wide(
                    #[inline(always)]
                    || logits.iter_mut().for_each(|l| *l = -exp(*l - log_sum) * scale),
                );
                logits[target] += scale;
            });
            let dlogits = Mat::of(&logits[..n * v], n, v);
            let head = Mat::of(&self.weights.base[place.clone()], v, d);
            product(&mut dx[i * chunk * d..], d, false, dlogits, head, self.threads);
            if let Some(dhead) = gradients.of(place) {
                product(dhead, d, true, dlogits.t(), Mat::of(x, n, d), self.threads);
            }
        }
    }

    /// Logits of one row, divided by the temperature.
    pub fn logits(&self, x: &[f32], logits: &mut [f32]) {
        let (v, d) = (self.weights.arena.shape.vocabulary, self.weights.arena.shape.hidden);
        let head = Mat::of(&self.weights.base[self.weights.arena.head.clone()], v, d);
        product(logits, v, false, Mat::of(x, x.len() / d, d), head.t(), self.threads);
        self.cool(logits);
    }

    fn rows(&self) -> usize {
        (AT_ONCE / self.weights.arena.shape.vocabulary).clamp(1, 1024)
    }

    /// Shows each row's logits, with its number and its target.
    fn each(
        &self,
        x: &[f32],
        targets: &[u32],
        logits: &mut Vec<f32>,
        mut show: impl FnMut(usize, &mut [f32], usize),
    ) {
        let (v, d) = (self.weights.arena.shape.vocabulary, self.weights.arena.shape.hidden);
        let chunk = self.rows();
        for (i, (x, targets)) in x.chunks(chunk * d).zip(targets.chunks(chunk)).enumerate() {
            let logits = sized(logits, targets.len() * v);
            self.logits(x, logits);
            for (j, (logits, target)) in logits.chunks_exact_mut(v).zip(targets).enumerate() {
                show(i * chunk + j, logits, *target as usize);
            }
        }
    }

    fn cool(&self, logits: &mut [f32]) {
        if self.temperature != 1.0 {
            let scale = 1.0 / self.temperature;
            wide(
                #[inline(always)]
                || logits.iter_mut().for_each(|l| *l *= scale),
            );
        }
    }
}

/// A token's log-probability under these logits, and their entropy.
pub fn thought(logits: &[f32], token: usize) -> Thought {
    let (top, total, mean) = wide(
        #[inline(always)]
        || {
            let top = largest(logits);
            // Few at a time, so that the sums keep their precision and nothing is allocated.
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
    Thought {
        log_prob: (f64::from(logits[token] - top) - log_total) as f32,
        entropy: (log_total - mean / total) as f32,
    }
}
