//! One new token's attention, over a prefix that others share and the token's own past. Heads go along in fours,
//! so that their sums do not wait for each other; each is the very sum that [`attend`](super::attention::attend)
//! makes for many tokens at once.

use pulp::{Simd, WithSimd};

use super::attention::{Cache, Heads};
use super::kernels::{softmax, wide_op};
use super::product::INNER;
use super::tile::{LINE, WIDEST};

/// Keys and values of some tokens in a [`Cache`].
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// How they lie.
    pub cache: Cache,
    /// The keys, as columns.
    pub keys: &'a [f32],
    /// The values, as lines.
    pub values: &'a [f32],
    /// Tokens that are there.
    pub tokens: usize,
}

/// From a token's query, `[H, E]`, to what is mixed, `[H, E]`. Its own key and value are the last of the last segment.
pub fn attend_one(
    heads: Heads,
    query: &[f32],
    segments: [Past<'_>; 2],
    mixed: &mut [f32],
    scores: &mut Vec<f32>,
) {
    let total: usize = segments.iter().map(|past| past.tokens).sum();
    let stride = stride(total);
    if scores.len() < heads.query * stride {
        scores.resize(heads.query * stride, 0.0);
    }
    // By reference: what was just written would be waited for where it is copied.
    wide_op(&mut One { heads, query, segments, mixed, scores, total });
}

/// From a head's scores to the next one's. Whole vectors are written, and the last may begin at the last score.
fn stride(total: usize) -> usize {
    total.next_multiple_of(LINE) + LINE
}

struct One<'a> {
    heads: Heads,
    query: &'a [f32],
    segments: [Past<'a>; 2],
    mixed: &'a mut [f32],
    scores: &'a mut [f32],
    total: usize,
}

impl WithSimd for &mut One<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (stride, scale) = (stride(self.total), self.heads.scale());
        for head in (0..self.heads.query).step_by(4) {
            match self.heads.query - head {
                1 => self.score::<S, 1>(simd, head),
                2 => self.score::<S, 2>(simd, head),
                3 => self.score::<S, 3>(simd, head),
                _ => self.score::<S, 4>(simd, head),
            }
        }
        for scores in self.scores.chunks_exact_mut(stride).take(self.heads.query) {
            softmax(scores, self.total, scale);
        }
        for head in (0..self.heads.query).step_by(4) {
            match self.heads.query - head {
                1 => self.mix::<S, 1>(simd, head),
                2 => self.mix::<S, 2>(simd, head),
                3 => self.mix::<S, 3>(simd, head),
                _ => self.mix::<S, 4>(simd, head),
            }
        }
    }
}

impl One<'_> {
    /// Scores of some heads with all keys: for each a chain over its numbers.
    #[inline(always)]
    fn score<S: Simd, const N: usize>(&mut self, simd: S, head: usize) {
        let (width, stride) = (self.heads.width, stride(self.total));
        let query: [&[f32]; N] = std::array::from_fn(|n| &self.query[(head + n) * width..][..width]);
        let mut from = 0;
        for past in &self.segments {
            for first in (0..past.tokens).step_by(WIDEST) {
                let panels: [(&[f32], usize); N] = std::array::from_fn(|n| {
                    past.cache.panel((head + n) / self.heads.group(), first, past.keys)
                });
                let wide = panels[0].1;
                for column in (0..wide.min(past.tokens - first)).step_by(S::F32_LANES) {
                    let mut sums = [simd.splat_f32s(0.0); N];
                    for i in 0..width {
                        for (sum, (query, (panel, _))) in sums.iter_mut().zip(query.iter().zip(&panels)) {
                            let (keys, _) = S::as_simd_f32s(&panel[i * wide + column..][..S::F32_LANES]);
                            *sum = simd.mul_add_e_f32s(simd.splat_f32s(query[i]), keys[0], *sum);
                        }
                    }
                    for (n, sum) in sums.iter().enumerate() {
                        let place = (head + n) * stride + from + first + column;
                        let (places, _) = S::as_mut_simd_f32s(&mut self.scores[place..][..S::F32_LANES]);
                        places[0] = *sum;
                    }
                }
            }
            from += past.tokens;
        }
    }

    /// What some heads mix of all values: for each a chain over tokens, in runs of [`INNER`] that are added up.
    #[inline(always)]
    fn mix<S: Simd, const N: usize>(&mut self, simd: S, head: usize) {
        let (width, stride) = (self.heads.width, stride(self.total));
        for column in (0..width).step_by(S::F32_LANES) {
            let mut mixed = [simd.splat_f32s(0.0); N];
            let mut from = 0;
            for past in &self.segments {
                let line = past.cache.line();
                for first in (0..past.tokens).step_by(INNER) {
                    let count = INNER.min(past.tokens - first);
                    let weights: [&[f32]; N] =
                        std::array::from_fn(|n| &self.scores[(head + n) * stride + from + first..][..count]);
                    let values: [&[f32]; N] = std::array::from_fn(|n| {
                        &past.cache.head_lines((head + n) / self.heads.group(), past.values)
                            [first * line + column..]
                    });
                    let mut sums = [simd.splat_f32s(0.0); N];
                    for i in 0..count {
                        for (sum, (weights, values)) in sums.iter_mut().zip(weights.iter().zip(&values)) {
                            let (values, _) = S::as_simd_f32s(&values[i * line..][..S::F32_LANES]);
                            *sum = simd.mul_add_e_f32s(simd.splat_f32s(weights[i]), values[0], *sum);
                        }
                    }
                    // Nothing is added to what is nothing yet, as in a tile: that would turn -0 into 0.
                    let begun = from + first > 0;
                    for (mixed, sum) in mixed.iter_mut().zip(sums) {
                        *mixed = if begun { simd.add_f32s(*mixed, sum) } else { sum };
                    }
                }
                from += past.tokens;
            }
            let used = S::F32_LANES.min(width - column);
            for (n, mixed) in mixed.iter().enumerate() {
                let y = &mut self.mixed[(head + n) * width + column..][..used];
                match S::as_mut_simd_f32s(y) {
                    ([place], []) => *place = *mixed,
                    _ => simd.partial_store_f32s(y, *mixed),
                }
            }
        }
    }
}
