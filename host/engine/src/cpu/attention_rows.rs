//! Attention of the newest tokens of rows that follow the same prompt, one of each row.
//! [`attend_one`](super::attention_one::attend_one) reads the prompt's keys and values once for each row; here tiles of rows read
//! them together. The bits are the same.

use pulp::{Simd, WithSimd};

use super::attention::{Heads, Past};
use super::attention_one::{One, stride};
use super::gemm::INNER;
use super::unit::{ROWS, Side, WIDEST};

/// Rows that are computed at a time, which bounds the size of their scores.
const AT_ONCE: usize = 2 * ROWS;

/// Rows that see all of their prompt.
pub struct Together<'a> {
    pub heads: Heads,
    /// Query, key and value of each row's newest token, `[N, row]`.
    pub qkv: &'a [f32],
    pub prompt: Past<'a>,
    /// Each row's own tokens. The newest is the last one.
    pub own: &'a [Past<'a>],
    /// Receives the mixed values, `[N, Q]`.
    pub mixed: &'a mut [f32],
    pub scores: &'a mut Vec<f32>,
}

impl WithSimd for Together<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, qkv, prompt, own, mixed, scores } = self;
        let wide = heads.query * heads.width;
        let rows = qkv.chunks(AT_ONCE * heads.row()).zip(own.chunks(AT_ONCE));
        for ((qkv, own), mixed) in rows.zip(mixed.chunks_mut(AT_ONCE * wide)) {
            let longest = own.iter().map(|own| own.seen.end).max().unwrap_or(0);
            let stride = stride(prompt.seen.end + longest);
            let size = own.len() * heads.group() * stride;
            if scores.len() < size {
                scores.resize(size, 0.0);
            }
            for kv in 0..heads.kv {
                QueryGroup { heads, qkv, prompt: &prompt, own, kv, stride }.run(simd, mixed, scores);
            }
        }
    }
}

/// The query heads of some rows that share a head of keys and values.
struct QueryGroup<'a> {
    heads: Heads,
    qkv: &'a [f32],
    prompt: &'a Past<'a>,
    own: &'a [Past<'a>],
    /// The head of keys and values.
    kv: usize,
    /// Distance between heads' scores. A row's are one after the other.
    stride: usize,
}

/// Some rows' queries of a head.
struct HeadTile {
    head: usize,
    /// The first row, and how many there are.
    row: usize,
    taken: usize,
    /// Place of the first row's scores.
    scores: usize,
}

impl QueryGroup<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, mixed: &mut [f32], scores: &mut [f32]) {
        self.score(simd, scores);
        self.by_row::<S, true, false>(simd, mixed, scores);
        self.mix(simd, mixed, scores);
        self.by_row::<S, false, true>(simd, mixed, scores);
    }

    /// Returns the tiles of all heads and rows.
    #[inline(always)]
    fn tiles(&self) -> impl Iterator<Item = HeadTile> {
        let (group, first, stride, n) =
            (self.heads.group(), self.kv * self.heads.group(), self.stride, self.own.len());
        let rows = move |head| (0..n).step_by(ROWS).map(move |row| (head, row));
        (first..first + group).flat_map(rows).map(move |(head, row)| HeadTile {
            head,
            row,
            taken: ROWS.min(n - row),
            scores: (row * group + head - first) * stride,
        })
    }

    /// Computes scores with the prompt's keys, a panel at a time.
    #[inline(always)]
    fn score<S: Simd>(&self, simd: S, scores: &mut [f32]) {
        let (width, row, tokens) = (self.heads.width, self.heads.row(), self.prompt.seen.end);
        let apart = self.heads.group() * self.stride;
        for first in (0..tokens).step_by(WIDEST) {
            let panel = first..tokens.min(first + WIDEST);
            for tile in self.tiles() {
                let side = (Side::Rows(&self.qkv[tile.row * row + tile.head * width..], row), tile.taken);
                let y = &mut scores[tile.scores + first..];
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
            for tile in self.tiles() {
                let weights = (&scores[tile.scores + first..], apart, tile.taken);
                let y = (&mut mixed[tile.row * wide + tile.head * width..], wide, first > 0);
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
        let rows = self.qkv.chunks_exact(heads.row()).zip(self.own);
        let places = mixed.chunks_exact_mut(wide).zip(scores.chunks_exact_mut(group * stride));
        for ((row, own), (mixed, scores)) in rows.zip(places) {
            let mut one = One {
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
            one.run::<S, WEIGH, MIX>(simd);
        }
    }
}
