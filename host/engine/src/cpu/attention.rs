//! Causal attention over a batch of answers, and its backward pass. A prompt's keys and values are those of all
//! its answers. No square of weights is kept: the backward pass makes each again from the logarithm of its row's
//! sum (Dao et al. 2022).
//!
//! A token's row holds its queries, keys and values side by side, `[Q | K | V]`, as heads of E numbers. What
//! comes out is the same to the last bit as what [`Past`](super::past::Past) gives a token at a time.

use std::ops::Range;

use super::block::sized;
use super::kernels::{dot, exp, softmax, wide};
use super::product::{Mat, product};

/// Tokens whose weights are made at a time.
const AT_ONCE: usize = 64;

/// What attention needs to know of a model.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub query: usize,
    /// Key and value heads.
    pub kv: usize,
    /// Width of a head.
    pub width: usize,
}

impl Heads {
    /// Numbers in a token's row.
    pub fn row(self) -> usize {
        (self.query + 2 * self.kv) * self.width
    }

    /// What scores are multiplied with.
    pub fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }

    /// Where a query head begins in a row, and the key and value heads that serve it.
    fn places(self, head: usize) -> (usize, usize, usize) {
        let served = head / (self.query / self.kv);
        let keys = self.query * self.width;
        (head * self.width, keys + served * self.width, keys + (self.kv + served) * self.width)
    }
}

/// Tokens that follow each other, in the rows of a batch: a prompt, or an answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What comes before and is shared with others: a prompt's rows, or none.
    pub prompt: Range<usize>,
    /// Its own rows.
    pub own: Range<usize>,
}

impl Span {
    /// The position of its first token.
    pub fn position(&self) -> usize {
        self.prompt.len()
    }

    /// What some of its tokens see at most: rows, and the first one's place among all that are seen.
    fn seen(&self, tokens: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let own = (self.own.start..self.own.start + tokens, self.prompt.len());
        [(self.prompt.clone(), 0), own].into_iter().filter(|(rows, _)| !rows.is_empty())
    }
}

/// A span's attention: from the batch's rows, `[N, row]`, to the mixed values of its own, `[T, Q]`. Keeps for
/// each token and query head the logarithm of the sum of its weights, `[T, H]`.
pub fn attend(
    heads: Heads,
    rows: &[f32],
    span: &Span,
    mixed: &mut [f32],
    log_sums: &mut [f32],
    scores: &mut Vec<f32>,
) {
    let (row, width, h) = (heads.row(), heads.width, heads.query);
    for head in 0..h {
        let (q, k, v) = heads.places(head);
        for first in (0..span.own.len()).step_by(AT_ONCE) {
            let n = AT_ONCE.min(span.own.len() - first);
            let total = span.prompt.len() + first + n;
            let scores = sized(scores, n * total);
            let queries = Mat::strided(&rows[(span.own.start + first) * row + q..], n, width, row);
            for (past, at) in span.seen(first + n) {
                let keys = Mat::strided(&rows[past.start * row + k..], past.len(), width, row);
                product(&mut scores[at..], total, false, queries, keys.t(), 1);
            }
            let log_sums = &mut log_sums[first * h..];
            wide(
                #[inline(always)]
                || {
                    for (t, scores) in scores.chunks_exact_mut(total).enumerate() {
                        let (seen, later) = scores.split_at_mut(total - n + t + 1);
                        seen.iter_mut().for_each(|s| *s *= heads.scale());
                        log_sums[t * h + head] = softmax(seen);
                        later.fill(0.0);
                    }
                },
            );
            let mixed = &mut mixed[(first * h + head) * width..];
            for (i, (past, at)) in span.seen(first + n).enumerate() {
                let weights = Mat::strided(&scores[at..], n, past.len(), total);
                let values = Mat::strided(&rows[past.start * row + v..], past.len(), width, row);
                product(mixed, h * width, i > 0, weights, values, 1);
            }
        }
    }
}

/// What a forward pass of attention left, and the gradient of what came out, of a span's own tokens.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// Mixed values, `[T, Q]`.
    pub values: &'a [f32],
    /// Logarithms of the sums of weights, `[T, H]`.
    pub log_sums: &'a [f32],
    /// Gradient of the mixed values, `[T, Q]`.
    pub gradient: &'a [f32],
}

/// The backward pass of [`attend`]: adds to the gradient of the batch's rows, those of the prompt included.
pub fn attend_back(
    heads: Heads,
    rows: &[f32],
    span: &Span,
    mixed: Mixed<'_>,
    drows: &mut [f32],
    room: &mut [Vec<f32>; 2],
) {
    let (row, width, h, scale) = (heads.row(), heads.width, heads.query, heads.scale());
    for head in 0..h {
        let (q, k, v) = heads.places(head);
        for first in (0..span.own.len()).step_by(AT_ONCE) {
            let n = AT_ONCE.min(span.own.len() - first);
            let total = span.prompt.len() + first + n;
            let [weights, dscores] = room;
            let (weights, dscores) = (sized(weights, n * total), sized(dscores, n * total));
            let start = (span.own.start + first) * row;
            let queries = Mat::strided(&rows[start + q..], n, width, row);
            let place = (first * h + head) * width;
            let gradients = Mat::strided(&mixed.gradient[place..], n, width, h * width);
            for (past, at) in span.seen(first + n) {
                let keys = Mat::strided(&rows[past.start * row + k..], past.len(), width, row);
                let values = Mat::strided(&rows[past.start * row + v..], past.len(), width, row);
                product(&mut weights[at..], total, false, queries, keys.t(), 1);
                product(&mut dscores[at..], total, false, gradients, values.t(), 1);
            }
            wide(
                #[inline(always)]
                || {
                    let both = weights.chunks_exact_mut(total).zip(dscores.chunks_exact_mut(total));
                    for (t, (weights, dscores)) in both.enumerate() {
                        let place = ((first + t) * h + head) * width;
                        let along = dot(&mixed.values[place..][..width], &mixed.gradient[place..][..width]);
                        let log_sum = mixed.log_sums[(first + t) * h + head];
                        let seen = total - n + t + 1;
                        for (w, d) in weights[..seen].iter_mut().zip(&mut dscores[..seen]) {
                            *w = exp(*w * scale - log_sum);
                            *d = *w * (*d - along) * scale;
                        }
                        weights[seen..].fill(0.0);
                        dscores[seen..].fill(0.0);
                    }
                },
            );
            for (past, at) in span.seen(first + n) {
                let weights = Mat::strided(&weights[at..], n, past.len(), total);
                let dscores = Mat::strided(&dscores[at..], n, past.len(), total);
                let keys = Mat::strided(&rows[past.start * row + k..], past.len(), width, row);
                product(&mut drows[past.start * row + v..], row, true, weights.t(), gradients, 1);
                product(&mut drows[past.start * row + k..], row, true, dscores.t(), queries, 1);
                product(&mut drows[start + q..], row, true, dscores, keys, 1);
            }
        }
    }
}
