//! Causal attention over whole sequences, and its backward pass. No square of weights is kept: the
//! backward pass makes each again from the logarithm of its row's sum (Dao et al. 2022).
//!
//! A token's row holds its queries, keys and values side by side, `[Q | K | V]`, as heads of E numbers.

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

/// One sequence's attention: from rows `[T, row]` to mixed values `[T, Q]`. Keeps for each token and
/// query head the logarithm of the sum of its weights, `[T, H]`.
pub fn attend(heads: Heads, rows: &[f32], mixed: &mut [f32], log_sums: &mut [f32], scores: &mut Vec<f32>) {
    let (row, width, scale) = (heads.row(), heads.width, heads.scale());
    let tokens = rows.len() / row;
    scores.resize(tokens, 0.0);
    wide(
        #[inline(always)]
        || {
            for head in 0..heads.query {
                let (q, k, v) = heads.places(head);
                for t in 0..tokens {
                    let query = &rows[t * row + q..][..width];
                    let scores = &mut scores[..=t];
                    for (score, past) in scores.iter_mut().zip(rows.chunks_exact(row)) {
                        *score = dot(query, &past[k..][..width]) * scale;
                    }
                    log_sums[t * heads.query + head] = softmax(scores);
                    let out = &mut mixed[(t * heads.query + head) * width..][..width];
                    out.fill(0.0);
                    for (weight, past) in scores.iter().zip(rows.chunks_exact(row)) {
                        add_scaled(out, *weight, &past[v..][..width]);
                    }
                }
            }
        },
    );
}

/// The backward pass of [`attend`]: adds to the gradient of the rows.
pub fn attend_back(
    heads: Heads,
    rows: &[f32],
    mixed: &[f32],
    log_sums: &[f32],
    dmixed: &[f32],
    drows: &mut [f32],
) {
    let (row, width, scale) = (heads.row(), heads.width, heads.scale());
    let tokens = rows.len() / row;
    wide(
        #[inline(always)]
        || {
            for head in 0..heads.query {
                let (q, k, v) = heads.places(head);
                for t in 0..tokens {
                    let place = (t * heads.query + head) * width;
                    let (out, dout) = (&mixed[place..][..width], &dmixed[place..][..width]);
                    let along = dot(out, dout);
                    let log_sum = log_sums[t * heads.query + head];
                    let query = &rows[t * row + q..][..width];
                    for s in 0..=t {
                        let past = &rows[s * row..][..row];
                        let key = &past[k..][..width];
                        let weight = exp(dot(query, key) * scale - log_sum);
                        let dweight = dot(dout, &past[v..][..width]);
                        let dscore = weight * (dweight - along) * scale;
                        add_scaled(&mut drows[s * row + v..][..width], weight, dout);
                        add_scaled(&mut drows[s * row + k..][..width], dscore, query);
                        add_scaled(&mut drows[t * row + q..][..width], dscore, key);
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
