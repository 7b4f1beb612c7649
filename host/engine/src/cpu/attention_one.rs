//! Attention of one new token over a shared prefix and the token's own past. Four heads are
//! computed together, so that their sums do not wait for each other. The sums have the order of
//! [`attend`](super::attention::attend). Rows that read a prompt together
//! ([`Together`](super::attention_rows::Together)) go through the tokens after it here, too.

use pulp::{Simd, WithSimd};

use super::attention::{Heads, Past};
use super::gemm::INNER;
use super::kernels::wide_op;
use super::softmax::{Seen, softmax};
use super::team::together;
use super::unit::{LINE, WIDEST};

/// Tokens from which on threads share the heads of a token.
const SHARED: usize = 1024;

/// Computes attention from a token's query, `[H, E]`, to its output, `[H, E]`. Its own key and
/// value are the last of the last segment. The tokens that it sees in both segments are one run.
/// After many tokens threads share its heads.
pub fn attend_one(
    heads: Heads,
    query: &[f32],
    segments: &[Past<'_>; 2],
    mixed: &mut [f32],
    (scores, threads): (&mut Vec<f32>, usize),
) {
    let total: usize = segments.iter().map(|past| past.seen.end).sum();
    let stride = stride(total);
    if scores.len() < heads.query * stride {
        scores.resize(heads.query * stride, 0.0);
    }
    if threads == 1 || total < SHARED {
        // By reference: copying would wait for values that were just written.
        return wide_op(&mut One {
            heads,
            first: 0,
            query,
            before: 0,
            segments,
            mixed,
            scores,
            stride,
            total,
        });
    }
    let each = heads.query.div_ceil(threads);
    let shares = mixed.chunks_mut(each * heads.width).zip(scores.chunks_mut(each * stride));
    together(shares.enumerate(), |(i, (mixed, scores))| {
        let first = i * each;
        wide_op(&mut One { heads, first, query, before: 0, segments, mixed, scores, stride, total });
    });
}

/// Returns the distance between heads' scores of so many tokens. The last whole vector may begin at the last score.
pub fn stride(total: usize) -> usize {
    total.next_multiple_of(LINE) + LINE
}

/// Some consecutive heads.
pub struct One<'a> {
    pub heads: Heads,
    /// The first one.
    pub first: usize,
    /// The token's query, `[H, E]`.
    pub query: &'a [f32],
    /// Tokens before the segments, all of which are seen. `scores` has their scores, and `mixed` their values, mixed, when those of
    /// the segments are added.
    pub before: usize,
    pub segments: &'a [Past<'a>],
    /// Mixed values of these heads.
    pub mixed: &'a mut [f32],
    /// Scores of these heads, `stride` apart.
    pub scores: &'a mut [f32],
    pub stride: usize,
    /// Tokens before and in the segments, up to the newest.
    pub total: usize,
}

impl WithSimd for &mut One<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.run::<S, true, true>(simd);
    }
}

/// Counts which key and value head serves the next query head. With short answers a division
/// for each head would cost more than its attention.
struct Serving {
    group: usize,
    kv: usize,
    served: usize,
}

impl Serving {
    #[inline(always)]
    fn next(&mut self) -> usize {
        let kv = self.kv;
        self.served += 1;
        if self.served == self.group {
            (self.kv, self.served) = (kv + 1, 0);
        }
        kv
    }
}

impl One<'_> {
    /// Computes all heads' weights, or mixes values by them, or both.
    #[inline(always)]
    pub fn run<S: Simd, const WEIGH: bool, const MIX: bool>(&mut self, simd: S) {
        let (group, count) = (self.heads.group(), self.mixed.len() / self.heads.width);
        let mut serving = Serving { group, kv: self.first / group, served: self.first % group };
        for head in (0..count).step_by(4) {
            let of: [usize; 4] = [serving.next(), serving.next(), serving.next(), serving.next()];
            match count - head {
                1 => self.heads_from::<S, 1, WEIGH, MIX>(simd, head, [of[0]]),
                2 => self.heads_from::<S, 2, WEIGH, MIX>(simd, head, [of[0], of[1]]),
                3 => self.heads_from::<S, 3, WEIGH, MIX>(simd, head, [of[0], of[1], of[2]]),
                _ => self.heads_from::<S, 4, WEIGH, MIX>(simd, head, of),
            }
        }
    }

    /// Computes N heads from the `head`th on; `of` has their key and value heads.
    #[inline(always)]
    fn heads_from<S: Simd, const N: usize, const WEIGH: bool, const MIX: bool>(
        &mut self,
        simd: S,
        head: usize,
        of: [usize; N],
    ) {
        if WEIGH {
            self.score(simd, head, of);
            self.weigh::<N>(head);
        }
        if MIX {
            self.mix(simd, head, of);
        }
    }

    /// Turns scores into weights.
    #[inline(always)]
    fn weigh<const N: usize>(&mut self, head: usize) {
        let stride = self.stride;
        let from = self.heads.first_seen(self.total);
        // Whole cache lines before the first seen token are skipped.
        let unseen = from / LINE * LINE;
        let scores = &mut self.scores[head * stride + unseen..];
        let scale = self.heads.cap(&mut scores[..N * stride - unseen]);
        let seen = Seen { from: from - unseen, to: self.total - unseen };
        softmax(scores, stride, [seen; N], scale);
    }

    /// Computes scores with all keys: for each key one chain over its numbers.
    #[inline(always)]
    fn score<S: Simd, const N: usize>(&mut self, simd: S, head: usize, of: [usize; N]) {
        let (width, stride) = (self.heads.width, self.stride);
        let mut query = [&self.query[..0]; N];
        let own = self.query[(self.first + head) * width..].chunks_exact(width);
        for (query, own) in query.iter_mut().zip(own) {
            *query = own;
        }
        let scores = &mut self.scores[head * stride..][..N * stride];
        let mut from = self.before;
        for past in self.segments {
            let begin = if past.seen.is_empty() { past.seen.end } else { past.first_panel() };
            for first in (begin..past.seen.end).step_by(WIDEST) {
                let (mut panels, mut wide) = ([S::as_simd_f32s(&[]).0; N], 0);
                for (vectors, kv) in panels.iter_mut().zip(of) {
                    let (panel, columns) = past.cache.panel(kv, first, past.keys);
                    (*vectors, wide) = (S::as_simd_f32s(panel).0, columns);
                }
                let line = wide / S::F32_LANES;
                for column in 0..wide.min(past.seen.end - first).div_ceil(S::F32_LANES) {
                    let mut sums = [simd.splat_f32s(0.0); N];
                    for i in 0..width {
                        for n in 0..N {
                            let keys = panels[n][i * line + column];
                            sums[n] = simd.mul_add_e_f32s(simd.splat_f32s(query[n][i]), keys, sums[n]);
                        }
                    }
                    for (n, sum) in sums.iter().enumerate() {
                        let place = n * stride + from + first + column * S::F32_LANES;
                        let (places, _) = S::as_mut_simd_f32s(&mut scores[place..][..S::F32_LANES]);
                        places[0] = *sum;
                    }
                }
            }
            from += past.seen.end;
        }
    }

    /// Mixes all values: for each head a chain over tokens, in runs of [`INNER`] that are added up.
    #[inline(always)]
    fn mix<S: Simd, const N: usize>(&mut self, simd: S, head: usize, of: [usize; N]) {
        let (width, stride) = (self.heads.width, self.stride);
        let scores = &self.scores[head * stride..][..N * stride];
        for column in 0..width.div_ceil(S::F32_LANES) {
            let used = S::F32_LANES.min(width - column * S::F32_LANES);
            let mut mixed = [simd.splat_f32s(0.0); N];
            let (mut from, mut begun) = (self.before, self.before > 0);
            if begun {
                for (n, mixed) in mixed.iter_mut().enumerate() {
                    let y = &self.mixed[(head + n) * width + column * S::F32_LANES..][..used];
                    *mixed = simd.partial_load_f32s(y);
                }
            }
            for past in self.segments {
                let line = past.cache.line() / S::F32_LANES;
                let mut lines = [S::as_simd_f32s(&[]).0; N];
                for (lines, kv) in lines.iter_mut().zip(of) {
                    *lines = S::as_simd_f32s(past.cache.head_lines(kv, past.values)).0;
                }
                let mut first = past.seen.start;
                while first < past.seen.end {
                    let count = (INNER - first % INNER).min(past.seen.end - first);
                    let mut weights = [&scores[..0]; N];
                    for (weights, scores) in weights.iter_mut().zip(scores.chunks_exact(stride)) {
                        *weights = &scores[from + first..][..count];
                    }
                    let mut sums = [simd.splat_f32s(0.0); N];
                    for i in 0..count {
                        for n in 0..N {
                            let values = lines[n][(first + i) * line + column];
                            sums[n] = simd.mul_add_e_f32s(simd.splat_f32s(weights[n][i]), values, sums[n]);
                        }
                    }
                    // The first sum is stored, not added to 0, as in a tile: adding would turn -0 into 0.
                    for (mixed, sum) in mixed.iter_mut().zip(sums) {
                        *mixed = if begun { simd.add_f32s(*mixed, sum) } else { sum };
                    }
                    begun = true;
                    first += count;
                }
                from += past.seen.end;
            }
            for (n, mixed) in mixed.iter().enumerate() {
                let y = &mut self.mixed[(head + n) * width + column * S::F32_LANES..][..used];
                match S::as_mut_simd_f32s(y) {
                    ([place], []) => *place = *mixed,
                    _ => simd.partial_store_f32s(y, *mixed),
                }
            }
        }
    }
}
