//! Causal attention over a batch of answers, and its backward pass. A prompt's keys and values are those of all
//! its answers. No square of weights is kept: the backward pass makes each again from the logarithm of its row's
//! sum (Dao et al. 2022).
//!
//! A token's row holds its queries, keys and values side by side, `[Q | K | V]`, as heads of E numbers. Sums are
//! made in one order, a token at a time or many at once: to the same last bit.

use std::ops::Range;

use super::kernels::{add_scaled, dot, exp, softmax, wide};

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

    /// Where a query head begins in a row, and the key and value heads that serve it.
    #[inline(always)]
    fn places(self, head: usize) -> (usize, usize, usize) {
        let served = head / (self.query / self.kv);
        let keys = self.query * self.width;
        (head * self.width, keys + served * self.width, keys + (self.kv + served) * self.width)
    }

    fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
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
    /// The rows that a token of it sees, in their order: two runs.
    #[inline(always)]
    fn seen(&self, token: usize) -> [Range<usize>; 2] {
        [self.prompt.clone(), self.own.start..token + 1]
    }
}

/// A span's attention: from the batch's rows, `[N, row]`, to mixed values, `[N, Q]`. Keeps for each token and
/// query head the logarithm of the sum of its weights, `[N, H]`.
pub fn attend(
    heads: Heads,
    rows: &[f32],
    span: &Span,
    mixed: &mut [f32],
    log_sums: &mut [f32],
    scores: &mut Vec<f32>,
) {
    let (row, width, scale) = (heads.row(), heads.width, heads.scale());
    let shared = span.prompt.len();
    scores.resize(shared + span.own.len(), 0.0);
    wide(
        #[inline(always)]
        || {
            for head in 0..heads.query {
                let (q, k, v) = heads.places(head);
                for (t, token) in span.own.clone().enumerate() {
                    let query = &rows[token * row + q..][..width];
                    let scores = &mut scores[..=shared + t];
                    for (seen, from) in span.seen(token).into_iter().zip([0, shared]) {
                        let past = rows[seen.start * row..seen.end * row].chunks_exact(row);
                        for (score, past) in scores[from..].iter_mut().zip(past) {
                            *score = dot(query, &past[k..][..width]) * scale;
                        }
                    }
                    log_sums[token * heads.query + head] = softmax(scores);
                    let out = &mut mixed[(token * heads.query + head) * width..][..width];
                    out.fill(0.0);
                    for (seen, from) in span.seen(token).into_iter().zip([0, shared]) {
                        let past = rows[seen.start * row..seen.end * row].chunks_exact(row);
                        for (weight, past) in scores[from..].iter().zip(past) {
                            add_scaled(out, *weight, &past[v..][..width]);
                        }
                    }
                }
            }
        },
    );
}

/// What a forward pass of attention left, and the gradient of what came out.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// Mixed values, `[N, Q]`.
    pub values: &'a [f32],
    /// Logarithms of the sums of weights, `[N, H]`.
    pub log_sums: &'a [f32],
    /// Gradient of the mixed values, `[N, Q]`.
    pub gradient: &'a [f32],
}

/// The backward pass of [`attend`]: adds to the gradient of the rows, those of the prompt included.
pub fn attend_back(heads: Heads, rows: &[f32], span: &Span, mixed: Mixed<'_>, drows: &mut [f32]) {
    let (row, width, scale) = (heads.row(), heads.width, heads.scale());
    wide(
        #[inline(always)]
        || {
            for head in 0..heads.query {
                let (q, k, v) = heads.places(head);
                for token in span.own.clone() {
                    let place = (token * heads.query + head) * width;
                    let (out, dout) = (&mixed.values[place..][..width], &mixed.gradient[place..][..width]);
                    let along = dot(out, dout);
                    let log_sum = mixed.log_sums[token * heads.query + head];
                    let query = &rows[token * row + q..][..width];
                    for past in span.seen(token).into_iter().flatten() {
                        let seen = &rows[past * row..][..row];
                        let key = &seen[k..][..width];
                        let weight = exp(dot(query, key) * scale - log_sum);
                        let dweight = dot(dout, &seen[v..][..width]);
                        let dscore = weight * (dweight - along) * scale;
                        add_scaled(&mut drows[past * row + v..][..width], weight, dout);
                        add_scaled(&mut drows[past * row + k..][..width], dscore, query);
                        add_scaled(&mut drows[token * row + q..][..width], dscore, key);
                    }
                }
            }
        },
    );
}

/// One new token's attention, over a prefix that others share and the token's own past, its own key
/// and value last. Keys and values are `[tokens, KV]` each.
pub fn attend_one(
    heads: Heads,
    query: &[f32],
    segments: [(&[f32], &[f32]); 2],
    mixed: &mut [f32],
    scores: &mut Vec<f32>,
) {
    let (kv, width, scale) = (heads.kv * heads.width, heads.width, heads.scale());
    let first = segments[0].0.len() / kv;
    let tokens = first + segments[1].0.len() / kv;
    scores.resize(tokens, 0.0);
    wide(
        #[inline(always)]
        || {
            for head in 0..heads.query {
                let at = head / (heads.query / heads.kv) * width;
                let query = &query[head * width..][..width];
                let (shared, own) = scores.split_at_mut(first);
                for (scores, (keys, _)) in [shared, own].into_iter().zip(segments) {
                    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(kv)) {
                        *score = dot(query, &key[at..][..width]) * scale;
                    }
                }
                softmax(scores);
                let out = &mut mixed[head * width..][..width];
                out.fill(0.0);
                let (shared, own) = scores.split_at(first);
                for (weights, (_, values)) in [shared, own].into_iter().zip(segments) {
                    for (weight, value) in weights.iter().zip(values.chunks_exact(kv)) {
                        add_scaled(out, *weight, &value[at..][..width]);
                    }
                }
            }
        },
    );
}
