//! Attention of one new token each of rows that follow the same prompt. [`attend_one`](super::attention_one::attend_one) reads
//! the prompt's keys and values once for each row; here tiles of rows read them together. The bits are the same.

use pulp::{Simd, WithSimd};

use super::attention::{Heads, Past};
use super::attention_one::{One, stride};
use super::gemm::INNER;
use super::unit::{ROWS, Side, WIDEST};

/// Rows that are computed at a time: their scores stay in a core's cache.
const SOME: usize = 2 * ROWS;

/// Rows that see all of their prompt.
pub struct Rows<'a> {
    pub heads: Heads,
    /// Each row's query, key and value, `[N, row]`.
    pub rows: &'a [f32],
    pub prompt: Past<'a>,
    /// Each row's own tokens. The newest is the last one.
    pub own: &'a [Past<'a>],
    /// Receives the mixed values, `[N, Q]`.
    pub mixed: &'a mut [f32],
    pub scores: &'a mut Vec<f32>,
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, rows, prompt, own, mixed, scores } = self;
        let wide = heads.query * heads.width;
        let some = rows.chunks(SOME * heads.row()).zip(own.chunks(SOME));
        for ((rows, own), mixed) in some.zip(mixed.chunks_mut(SOME * wide)) {
            let longest = own.iter().map(|own| own.seen.end).max().unwrap_or(0);
            let stride = stride(prompt.seen.end + longest);
            let size = own.len() * heads.group() * stride;
            if scores.len() < size {
                scores.resize(size, 0.0);
            }
            for kv in 0..heads.kv {
                KvHead { heads, rows, prompt: &prompt, own, kv, stride }.run(simd, mixed, scores);
            }
        }
    }
}

/// The heads of some rows that share keys and values.
struct KvHead<'a> {
    heads: Heads,
    rows: &'a [f32],
    prompt: &'a Past<'a>,
    own: &'a [Past<'a>],
    /// The head of keys and values.
    kv: usize,
    /// Distance between heads' scores. A row's are one after the other.
    stride: usize,
}

impl KvHead<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, mixed: &mut [f32], scores: &mut [f32]) {
        self.score(simd, scores);
        self.by_row::<S, true, false>(simd, mixed, scores);
        self.mix(simd, mixed, scores);
        self.by_row::<S, false, true>(simd, mixed, scores);
    }

    /// Returns the tiles of these rows: the query's head, its place among the heads, and the first and the number of rows.
    #[inline(always)]
    fn tiles(&self) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let (group, n) = (self.heads.group(), self.own.len());
        let of = move |place| (0..n).step_by(ROWS).map(move |row| (place, row, ROWS.min(n - row)));
        let first = self.kv * group;
        (0..group).flat_map(of).map(move |(place, row, taken)| (first + place, place, row, taken))
    }

    /// Computes scores with the prompt's keys, a panel at a time.
    #[inline(always)]
    fn score<S: Simd>(&self, simd: S, scores: &mut [f32]) {
        let (width, row, tokens) = (self.heads.width, self.heads.row(), self.prompt.seen.end);
        let apart = self.heads.group() * self.stride;
        for first in (0..tokens).step_by(WIDEST) {
            let panel = first..tokens.min(first + WIDEST);
            for (head, place, at, taken) in self.tiles() {
                let side = (Side::Rows(&self.rows[at * row + head * width..], row), taken);
                let y = &mut scores[at * apart + place * self.stride + first..];
                self.prompt.cache.score(simd, (self.kv, self.prompt.keys), side, panel.clone(), (y, apart));
            }
        }
    }

    /// Mixes the prompt's values, a run of them at a time.
    #[inline(always)]
    fn mix<S: Simd>(&self, simd: S, mixed: &mut [f32], scores: &[f32]) {
        let (width, tokens) = (self.heads.width, self.prompt.seen.end);
        let (wide, apart) = (self.heads.query * width, self.heads.group() * self.stride);
        for first in (0..tokens).step_by(INNER) {
            let run = first..tokens.min(first + INNER);
            for (head, place, at, taken) in self.tiles() {
                let weights = (&scores[at * apart + place * self.stride + first..], apart, taken);
                let y = (&mut mixed[at * wide + head * width..], wide, first > 0);
                self.prompt.cache.mix(simd, (self.kv, self.prompt.values), weights, run.clone(), y);
            }
        }
    }

    /// Computes the weights of each row, or mixes each row's own values.
    #[inline(always)]
    fn by_row<S: Simd, const WEIGH: bool, const MIX: bool>(
        &self,
        simd: S,
        mixed: &mut [f32],
        scores: &mut [f32],
    ) {
        let Self { heads, kv, stride, .. } = *self;
        let (group, wide, before) = (heads.group(), heads.query * heads.width, self.prompt.seen.end);
        let rows = self.rows.chunks_exact(heads.row()).zip(self.own);
        let places = mixed.chunks_exact_mut(wide).zip(scores.chunks_exact_mut(group * stride));
        for ((row, own), (mixed, scores)) in rows.zip(places) {
            let one = One {
                heads,
                first: kv * group,
                query: &row[..wide],
                before,
                segments: std::slice::from_ref(own),
                mixed: &mut mixed[kv * group * heads.width..][..group * heads.width],
                scores,
                stride,
                total: before + own.seen.end,
            };
            { one }.run::<S, WEIGH, MIX>(simd);
        }
    }
}
