//! The head: from the stream to log-probabilities of the target tokens, and back. Vocabularies
//! can be large, so logits are computed for some rows at a time and never kept.

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::Mat;
use super::half::share;
use super::kernels::{capped, exp, uncapped, wide};
use super::weights::{Gradients, Weights, sized};
use crate::core::{TokenGradients, TokenStatistics};
use crate::mask::leave;
use crate::model::Variant;

/// Logits computed at a time: rows times vocabulary.
pub const AT_ONCE: usize = 1 << 24;

/// The head of a model at a sampling temperature.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The model's weights.
    pub weights: Weights<'a>,
    /// Divisor of the logits.
    pub temperature: f32,
    /// Threads of each matrix product.
    pub threads: usize,
    /// Tokens that each target was drawn from; empty if all were drawn from the whole vocabulary.
    pub masks: &'a [&'a [u32]],
}

impl Head<'_> {
    /// Returns statistics of each target. `x` is `[R, D]`, after the final norm.
    pub fn logprob_entropy(
        &self,
        x: &[f32],
        targets: &[u32],
        scratch: &mut Vec<f32>,
    ) -> Vec<TokenStatistics> {
        let mut statistics = Vec::with_capacity(targets.len());
        for rows in pieces(0..targets.len(), self.most()) {
            let logits = self.logits(x, rows.clone(), scratch);
            statistics.extend(self.statistics(logits, &targets[rows]));
        }
        statistics
    }

    /// Runs the forward and backward passes for answers with these numbers of targets. `loss`
    /// receives an answer's index and the statistics of its targets, and returns the gradient by
    /// them. Writes the gradient of `x` and adds to the head's.
    pub fn learn(
        &self,
        (x, targets, answers): (&[f32], &[u32], &[usize]),
        loss: impl Fn(usize, &[TokenStatistics]) -> TokenGradients,
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        scratch: &mut Vec<f32>,
    ) {
        let (mut first, mut start) = (0, 0);
        while first < answers.len() {
            // As many whole answers as fit: a loss may depend on all tokens of an answer.
            let (mut last, mut end) = (first + 1, start + answers[first]);
            while last < answers.len() && end + answers[last] - start <= self.most() {
                end += answers[last];
                last += 1;
            }
            let whole = end - start <= self.most();
            let statistics = if whole {
                self.statistics(self.logits(x, start..end, scratch), &targets[start..end])
            } else {
                let d = self.weights.arena.shape.hidden;
                let part = Self { masks: self.masks.get(start..end).unwrap_or_default(), ..*self };
                part.logprob_entropy(&x[start * d..end * d], &targets[start..end], scratch)
            };
            let mut slopes = TokenGradients::default();
            for answer in first..last {
                let from = slopes.log_probs.len();
                slopes.extend(loss(answer, &statistics[from..from + answers[answer]]));
            }
            for rows in pieces(start..end, self.most()) {
                if !whole {
                    self.logits(x, rows.clone(), scratch);
                }
                let own = rows.start - start..rows.end - start;
                let of = (&targets[rows.clone()], &statistics[own.clone()]);
                let slopes = (&slopes.log_probs[own.clone()], slopes.entropies.get(own).unwrap_or_default());
                self.back((x, rows), of, slopes, dx, gradients, scratch);
            }
            (first, start) = (last, end);
        }
    }

    /// Runs the backward pass of rows; gradients replace logits in `scratch`. Derivatives by a logit: a
    /// target's log-probability has `[v = target] - p[v]`, the entropy `H` has `-p[v] (log p[v] + H)`.
    fn back(
        &self,
        (x, rows): (&[f32], Range<usize>),
        (targets, statistics): (&[u32], &[TokenStatistics]),
        (dlog_probs, dentropies): (&[f32], &[f32]),
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        scratch: &mut [f32],
    ) {
        let (v, d, n) = (self.weights.arena.shape.vocabulary, self.weights.arena.shape.hidden, rows.len());
        let share = share(n, self.threads);
        scratch[..n * v].par_chunks_mut(share * v).enumerate().for_each(|(part, logits)| {
            for (i, logits) in (part * share..).zip(logits.chunks_exact_mut(v)) {
                let slopes = (dlog_probs[i], dentropies.get(i).copied().unwrap_or_default());
                self.slope(logits, targets[i] as usize, statistics[i], slopes);
            }
        });
        let place = &self.weights.arena.head;
        let dlogits = Mat::of(&scratch[..n * v], n, v);
        let head = Mat::of(&self.weights.base[place.clone()], v, d);
        let own = rows.start * d..rows.end * d;
        let arithmetic = self.weights.arithmetic;
        arithmetic.product(&mut dx[own.clone()], d, false, dlogits, head, self.threads);
        if let Some(dhead) = gradients.of(place) {
            arithmetic.product(dhead, d, true, dlogits.t(), Mat::of(&x[own], n, d), self.threads);
        }
    }

    /// Replaces a row's logits by their gradient.
    fn slope(
        &self,
        logits: &mut [f32],
        target: usize,
        statistics: TokenStatistics,
        (dlog_prob, dentropy): (f32, f32),
    ) {
        let variant = &self.weights.arena.shape.variant;
        let log_sum = logits[target] - statistics.log_prob;
        let scaled = |slope: f32| slope / self.temperature / variant.logits as f32;
        let (scale, bonus) = (scaled(dlog_prob), scaled(dentropy));
        // Logits are already divided by the temperature here.
        let cap = variant.logit_cap.map(|cap| cap as f32 / self.temperature);
        let own = scale * cap.map_or(1.0, |cap| uncapped(logits[target], cap));
        let entropy = statistics.entropy;
        wide(
            #[inline(always)]
            || match (cap, bonus == 0.0) {
                (None, true) => logits.iter_mut().for_each(|l| *l = -exp(*l - log_sum) * scale),
                (None, false) => logits.iter_mut().for_each(|l| {
                    let log_prob = *l - log_sum;
                    *l = -exp(log_prob) * (scale + bonus * (log_prob + entropy));
                }),
                (Some(cap), true) => {
                    for l in &mut *logits {
                        *l = -exp(*l - log_sum) * scale * uncapped(*l, cap);
                    }
                }
                (Some(cap), false) => logits.iter_mut().for_each(|l| {
                    let log_prob = *l - log_sum;
                    *l = -exp(log_prob) * (scale + bonus * (log_prob + entropy)) * uncapped(*l, cap);
                }),
            },
        );
        logits[target] += own;
    }

    /// Returns the logits of some rows, divided by the temperature; masked tokens get a very low logit.
    fn logits<'r>(&self, x: &[f32], rows: Range<usize>, scratch: &'r mut Vec<f32>) -> &'r mut [f32] {
        let (v, d) = (self.weights.arena.shape.vocabulary, self.weights.arena.shape.hidden);
        let (x, logits) = (&x[rows.start * d..rows.end * d], sized(scratch, rows.len() * v));
        if let Some(laid) = self.weights.laid {
            laid.head.spread(x, logits, false, self.threads);
        } else {
            let head = Mat::of(&self.weights.base[self.weights.arena.head.clone()], v, d);
            let (arithmetic, x) = (self.weights.arithmetic, Mat::of(x, rows.len(), d));
            arithmetic.product(logits, v, false, x, head.t(), self.threads);
        }
        let (share, masks) = (share(rows.len(), self.threads), self.masks.get(rows).unwrap_or_default());
        logits.par_chunks_mut(share * v).enumerate().for_each(|(part, logits)| {
            finish(&self.weights.arena.shape.variant, logits);
            if self.temperature != 1.0 {
                let scale = 1.0 / self.temperature;
                wide(
                    #[inline(always)]
                    || logits.iter_mut().for_each(|l| *l *= scale),
                );
            }
            let masks = masks.get(part * share..).unwrap_or_default();
            logits.chunks_exact_mut(v).zip(masks).for_each(|(logits, kept)| leave(logits, kept));
        });
        logits
    }

    fn statistics(&self, logits: &[f32], targets: &[u32]) -> Vec<TokenStatistics> {
        let (v, share) = (self.weights.arena.shape.vocabulary, share(targets.len(), self.threads));
        let shares = logits.par_chunks(share * v).zip(targets.par_chunks(share));
        let of_rows = |(logits, targets): (&[f32], &[u32])| -> Vec<TokenStatistics> {
            let rows = logits.chunks_exact(v).zip(targets);
            rows.map(|(logits, target)| TokenStatistics::of(logits, *target as usize)).collect()
        };
        shares.map(of_rows).collect::<Vec<_>>().concat()
    }

    /// Returns the number of rows whose logits fit.
    fn most(&self) -> usize {
        (AT_ONCE / self.weights.arena.shape.vocabulary).clamp(1, 4096)
    }
}

/// Turns products with the head into logits: scaled and capped if the model does that.
pub fn finish(variant: &Variant, logits: &mut [f32]) {
    let over = variant.logits as f32;
    if over != 1.0 {
        wide(
            #[inline(always)]
            || logits.iter_mut().for_each(|l| *l /= over),
        );
    }
    if let Some(cap) = variant.logit_cap {
        let cap = cap as f32;
        wide(
            #[inline(always)]
            || logits.iter_mut().for_each(|l| *l = capped(*l, cap)),
        );
    }
}

/// Splits rows into pieces of at most `most`.
fn pieces(rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(most).map(move |from| from..rows.end.min(from + most))
}
