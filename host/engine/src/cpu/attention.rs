//! Causal attention over a batch of answers, in tiles. All answers to a prompt share its keys and values.
//! The square of weights is not kept: the backward pass ([`attention_back`](super::attention_back))
//! recomputes each weight from the logarithm of its row's sum (Dao et al. 2022).
//!
//! A token's row is `[Q | K | V]`, as heads of E numbers. Past keys and values are copied to a
//! [`Cache`]: keys as columns for scores, values as lines for mixing. All sums have a fixed
//! order: one token or many at once give the same bits.

use std::ops::Range;
use std::slice::ChunksExact;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::arithmetic::Arithmetic;
use super::bf16::pairs_mut;
use super::gemm::INNER;
use super::kernels::{capped, copy, wide, wide_op};
use super::softmax::{Seen, softmaxes};
use super::unit::{LINE, ROWS, Side, Tile, WIDEST};
use crate::model::Shape;

/// Tiles of queries that are computed at a time: a panel is read from far away once for all of them.
const TILES: usize = 4;

/// Tokens that a thread takes at a time.
const SHARE: usize = 8 * ROWS;

/// Attention settings of a model.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Arithmetic of its products.
    pub arithmetic: Arithmetic,
    /// Query heads.
    pub query: usize,
    /// Key and value heads.
    pub kv: usize,
    /// Width of a head.
    pub width: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Cap of the scaled scores, by a hyperbolic tangent.
    pub cap: Option<f32>,
    /// Sliding window in tokens, including the token itself; `None` for all tokens before it.
    pub window: Option<usize>,
}

impl Heads {
    /// Returns the settings of a model, for layers without a window.
    pub fn of(shape: &Shape, arithmetic: Arithmetic) -> Self {
        let usual = 1.0 / (shape.head as f32).sqrt();
        Self {
            arithmetic: if shape.rounds_attention() { arithmetic } else { Arithmetic::Single },
            query: shape.heads,
            kv: shape.kv_heads,
            width: shape.head,
            scale: shape.variant.attention.map_or(usual, |scale| scale as f32),
            cap: shape.variant.attention_cap.map(|cap| cap as f32),
            window: None,
        }
    }

    /// Returns whether products are of pairs in bf16.
    #[inline(always)]
    pub fn in_pairs(self) -> bool {
        matches!(self.arithmetic, Arithmetic::Bf16(_))
    }

    /// Returns the first token that the last of `tokens` tokens sees.
    #[inline(always)]
    pub fn first_seen(self, tokens: usize) -> usize {
        self.window.map_or(0, |window| tokens.saturating_sub(window))
    }

    /// Returns the size of a token's row.
    pub fn row(self) -> usize {
        (self.query + 2 * self.kv) * self.width
    }

    /// Returns the number of query heads per key and value head.
    pub fn group(self) -> usize {
        self.query / self.kv
    }

    /// Returns the ranges of keys and values in a token's row.
    pub fn past(self) -> [Range<usize>; 2] {
        let (q, kv) = (self.query * self.width, self.kv * self.width);
        [q..q + kv, q + kv..q + 2 * kv]
    }

    /// Caps scores if the model does that. Returns the factor that remains to be applied to them.
    #[inline(always)]
    pub fn cap(self, scores: &mut [f32]) -> f32 {
        let Some(cap) = self.cap else { return self.scale };
        for score in scores {
            *score = capped(*score * self.scale, cap);
        }
        1.0
    }
}

/// Consecutive tokens in the rows of a batch: a prompt, or an answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of the shared prompt before it, or none.
    pub prompt: Range<usize>,
    /// Its own rows.
    pub own: Range<usize>,
}

/// Layout of past keys and values.
///
/// As columns, a head has panels of [`WIDEST`] adjacent tokens, `[E, WIDEST]` each; the last one
/// ends at the capacity. As lines, a head is `[capacity, E]`, with E padded to whole cache lines. In bf16 the same memory
/// has pairs of numbers, in [another layout](super::paired::cache).
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    pub heads: Heads,
    /// Capacity in tokens: a multiple of the cache line, or of a panel in bf16.
    pub capacity: usize,
}

impl Cache {
    /// Returns the layout for `tokens` tokens.
    pub fn new(heads: Heads, tokens: usize) -> Self {
        let whole = if heads.in_pairs() { WIDEST } else { LINE };
        Self { heads, capacity: tokens.next_multiple_of(whole) }
    }

    /// Returns the size of all heads as columns.
    pub fn columns(self) -> usize {
        if self.heads.in_pairs() {
            return self.pair_columns();
        }
        self.heads.kv * self.heads.width * self.capacity
    }

    /// Returns the size of all heads as lines.
    pub fn lines(self) -> usize {
        if self.heads.in_pairs() {
            return self.pair_lines();
        }
        self.heads.kv * self.capacity * self.line()
    }

    /// Returns the size of a line.
    pub fn line(self) -> usize {
        self.heads.width.next_multiple_of(LINE)
    }

    /// Returns a head's panel of columns that begins with this token, `[E, wide]`, and its width.
    #[inline(always)]
    pub fn panel(self, head: usize, first: usize, columns: &[f32]) -> (&[f32], usize) {
        let (width, wide) = (self.heads.width, WIDEST.min(self.capacity - first));
        (&columns[(head * self.capacity + first) * width..][..width * wide], wide)
    }

    /// Returns a head's lines.
    #[inline(always)]
    pub fn head_lines(self, head: usize, lines: &[f32]) -> &[f32] {
        let size = self.capacity * self.line();
        &lines[head * size..][..size]
    }

    /// Copies a token's heads, `[K, E]`, into columns.
    #[inline(always)]
    pub fn put_column(self, token: usize, numbers: &[f32], columns: &mut [f32]) {
        if self.heads.in_pairs() {
            return self.put_pair_column(token, numbers, pairs_mut(columns));
        }
        let width = self.heads.width;
        let first = token / WIDEST * WIDEST;
        let wide = WIDEST.min(self.capacity - first);
        for (head, numbers) in numbers.chunks_exact(width).enumerate() {
            let panel = &mut columns[(head * self.capacity + first) * width..][..width * wide];
            for (place, number) in panel[token - first..].iter_mut().step_by(wide).zip(numbers) {
                *place = *number;
            }
        }
    }

    /// Copies a token's heads, `[K, E]`, into lines.
    #[inline(always)]
    pub fn put_line(self, token: usize, numbers: &[f32], lines: &mut [f32]) {
        if self.heads.in_pairs() {
            return self.put_pair_line(token, numbers, pairs_mut(lines));
        }
        for (head, numbers) in numbers.chunks_exact(self.heads.width).enumerate() {
            copy(numbers, &mut lines[(head * self.capacity + token) * self.line()..][..numbers.len()]);
        }
    }

    /// Copies tokens' keys, to columns, and values, to lines, which have these places in their rows, from the `first` token on.
    pub fn put(
        self,
        first: usize,
        rows: ChunksExact<'_, f32>,
        [keys, values]: [Range<usize>; 2],
        (columns, lines): (&mut [f32], &mut [f32]),
    ) {
        wide(
            #[inline(always)]
            || {
                for (token, row) in (first..).zip(rows) {
                    self.put_column(token, &row[keys.clone()], columns);
                    self.put_line(token, &row[values.clone()], lines);
                }
            },
        );
    }

    /// Multiplies rows with a head's columns: one sum for each of `tokens`, whose first token must
    /// begin a panel.
    #[inline(always)]
    pub fn score<S: Simd>(
        self,
        simd: S,
        (head, columns): (usize, &[f32]),
        (side, taken): (Side<'_>, usize),
        tokens: Range<usize>,
        (y, stride): (&mut [f32], usize),
    ) {
        let inner = self.heads.width;
        for first in tokens.clone().step_by(WIDEST) {
            let panel = self.panel(head, first, columns);
            let used = panel.1.min(tokens.end - first);
            let tile = Tile { side, taken, inner, panel, used, stride, add: false };
            tile.wide(simd, &mut y[first - tokens.start..]);
        }
    }

    /// Multiplies `weights` with a head's lines, summed over `tokens`. Rows of weights are `apart`
    /// numbers apart. Sums are split at multiples of [`INNER`] and then added: earlier tokens of
    /// weight 0 do not change the result.
    #[inline(always)]
    pub fn mix<S: Simd>(
        self,
        simd: S,
        (head, lines): (usize, &[f32]),
        (weights, apart, taken): (&[f32], usize, usize),
        tokens: Range<usize>,
        (y, stride, add): (&mut [f32], usize, bool),
    ) {
        let (line, mut first) = (self.line(), tokens.start);
        while first < tokens.end {
            let side = Side::Rows(&weights[first - tokens.start..], apart);
            let inner = (INNER - first % INNER).min(tokens.end - first);
            let panel = (&self.head_lines(head, lines)[first * line..], line);
            let add = add || first > tokens.start;
            let tile = Tile { side, taken, inner, panel, used: self.heads.width, stride, add };
            tile.wide(simd, y);
            first += inner;
        }
    }
}

/// Keys and values of some tokens in a [`Cache`].
#[derive(Clone, Debug)]
pub struct Past<'a> {
    pub cache: Cache,
    /// The keys, as columns.
    pub keys: &'a [f32],
    /// The values, as lines.
    pub values: &'a [f32],
    /// The tokens that are seen.
    pub seen: Range<usize>,
}

impl Past<'_> {
    /// Returns the start of the first panel with a token that is seen.
    #[inline(always)]
    pub fn first_panel(&self) -> usize {
        self.seen.start / WIDEST * WIDEST
    }
}

/// Buffers of a pass.
#[derive(Clone, Debug, Default)]
pub struct AttentionScratch {
    prompt: [Vec<f32>; 2],
    own: [Vec<f32>; 2],
    scores: Vec<f32>,
}

#[cfg(test)]
impl AttentionScratch {
    /// Returns buffers with these numbers in the place of scores.
    pub fn of(scores: Vec<f32>) -> Self {
        Self { scores, ..Self::default() }
    }
}

/// Computes the attention of a batch's spans: from rows, `[N, row]`, to mixed values, `[N, Q]`.
/// Writes the logarithm of each sum of weights to `log_sums`, `[N, H]`.
pub fn attend(
    heads: Heads,
    rows: &[f32],
    spans: &[Span],
    (mixed, log_sums): (&mut [f32], &mut [f32]),
    scratch: &mut AttentionScratch,
    threads: usize,
) {
    let AttentionScratch { prompt, own, scores } = scratch;
    let (row, mut laid) = (heads.query * heads.width, 0..0);
    for span in spans {
        if span.prompt != laid {
            lay(heads, rows, &span.prompt, prompt);
            laid = span.prompt.clone();
        }
        lay(heads, rows, &span.own, own);
        let (before, tokens) = (span.prompt.len(), span.own.len());
        let segments = [
            Past { cache: Cache::new(heads, before), keys: &prompt[0], values: &prompt[1], seen: 0..before },
            Past { cache: Cache::new(heads, tokens), keys: &own[0], values: &own[1], seen: 0..tokens },
        ];
        let which = span.own.clone();
        let rows = &rows[which.start * heads.row()..which.end * heads.row()];
        let mixed = &mut mixed[which.start * row..which.end * row];
        let log_sums = &mut log_sums[which.start * heads.query..which.end * heads.query];
        Stretch { heads, rows, segments }.attend(mixed, log_sums, scores, threads);
    }
}

/// Computes the attention of tokens that follow others: their rows, `[N, row]`, over two segments of keys and
/// values. The last N tokens of the second segment are their own.
pub fn attend_after(
    heads: Heads,
    rows: &[f32],
    segments: [Past<'_>; 2],
    (mixed, log_sums): (&mut [f32], &mut [f32]),
    scratch: &mut AttentionScratch,
    threads: usize,
) {
    Stretch { heads, rows, segments }.attend(mixed, log_sums, &mut scratch.scores, threads);
}

/// Consecutive tokens whose queries attend to two segments of keys and values. Their own keys are the last of
/// the second segment.
pub struct Stretch<'a> {
    pub heads: Heads,
    /// The tokens' rows.
    pub rows: &'a [f32],
    /// All keys and values that are there.
    pub segments: [Past<'a>; 2],
}

impl Stretch<'_> {
    /// Many tokens are shared by threads. A token's bits depend on it alone.
    fn attend(&self, mixed: &mut [f32], log_sums: &mut [f32], scores: &mut Vec<f32>, threads: usize) {
        let (row, query) = (self.heads.query * self.heads.width, self.heads.query);
        if self.heads.in_pairs() {
            return self.attend_in_pairs(mixed, log_sums, threads);
        }
        if threads == 1 || log_sums.len() <= SHARE * query {
            return wide_op(Queries { stretch: self, first: 0, mixed, log_sums, scores });
        }
        let shares = mixed.par_chunks_mut(SHARE * row).zip(log_sums.par_chunks_mut(SHARE * query));
        shares.enumerate().for_each_init(Vec::new, |scores, (i, (mixed, log_sums))| {
            wide_op(Queries { stretch: self, first: i * SHARE, mixed, log_sums, scores });
        });
    }
}

/// Some consecutive tokens of a stretch.
struct Queries<'a> {
    stretch: &'a Stretch<'a>,
    /// The first one.
    first: usize,
    mixed: &'a mut [f32],
    log_sums: &'a mut [f32],
    scores: &'a mut Vec<f32>,
}

impl WithSimd for Queries<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { stretch, first, mixed, log_sums, scores } = self;
        let (heads, last) = (stretch.heads, first + log_sums.len() / stretch.heads.query);
        let total: usize = stretch.segments.iter().map(|past| past.seen.end).sum();
        let total = total.next_multiple_of(LINE);
        scores.resize(TILES * ROWS * total, 0.0);
        for block in (first..last).step_by(TILES * ROWS) {
            let mut tiles = [QueryTile::default(); TILES];
            let tiles = &mut tiles[..(last - block).div_ceil(ROWS).min(TILES)];
            for (tile, first) in tiles.iter_mut().zip((block..last).step_by(ROWS)) {
                *tile = stretch.tile(first, ROWS.min(last - first));
            }
            for head in 0..heads.query {
                stretch.score(simd, head, tiles, (scores, total));
                for (tile, scores) in tiles.iter().zip(scores.chunks_exact_mut(ROWS * total)) {
                    let logs = &mut log_sums[(tile.first - first) * heads.query..];
                    tile.weigh(heads, head, (scores, total), logs);
                }
                let y = &mut mixed[(block - first) * heads.query * heads.width..];
                stretch.mix(simd, head, tiles, (scores, total), y);
            }
        }
    }
}

/// Some consecutive queries.
#[derive(Clone, Copy, Default)]
pub struct QueryTile {
    /// The first one.
    first: usize,
    pub taken: usize,
    /// Tokens before the first one.
    pub before: usize,
    /// From the first token that the first query sees, in each segment, to the last that the last query sees. Tokens that a
    /// query does not see get weight 0.
    pub seen: [(usize, usize); 2],
}

impl QueryTile {
    /// Turns a head's scores into weights. Writes the logarithms of their sums to `logs`, `[N, H]`.
    #[inline(always)]
    fn weigh(&self, heads: Heads, head: usize, (scores, total): (&mut [f32], usize), logs: &mut [f32]) {
        // Whole cache lines before the first seen token are skipped.
        let unseen = heads.first_seen(self.before + 1) / LINE * LINE;
        let mut seen = [Seen { from: 0, to: 0 }; ROWS];
        for (seen, to) in seen.iter_mut().zip(self.before + 1..) {
            *seen = Seen { from: heads.first_seen(to) - unseen, to: to - unseen };
        }
        let mut own = [0.0; ROWS];
        let seen_scores = &mut scores[unseen..];
        let scale = heads.cap(&mut seen_scores[..self.taken * total - unseen]);
        softmaxes(seen_scores, total, &seen[..self.taken], scale, &mut own);
        for (log, own) in logs[head..].iter_mut().step_by(heads.query).zip(&own[..self.taken]) {
            *log = *own;
        }
    }
}

impl Stretch<'_> {
    /// Returns `taken` queries from the `first` on.
    #[inline(always)]
    pub fn tile(&self, first: usize, taken: usize) -> QueryTile {
        let [prompt, own] = &self.segments;
        let known = own.seen.end - self.rows.len() / self.heads.row();
        let before = prompt.seen.end + known + first;
        let begin = self.heads.first_seen(before + 1);
        let of_prompt = (begin.min(prompt.seen.end), prompt.seen.end);
        let seen = [of_prompt, (begin.saturating_sub(prompt.seen.end), known + first + taken)];
        QueryTile { first, taken, before, seen }
    }

    /// Computes tiles' scores with a head's keys, a panel at a time, so that it is read from far away once for all tiles.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        simd: S,
        head: usize,
        tiles: &[QueryTile],
        (scores, total): (&mut [f32], usize),
    ) {
        let (row, width, kv) = (self.heads.row(), self.heads.width, head / self.heads.group());
        let mut from = 0;
        for (which, past) in self.segments.iter().enumerate() {
            let (begin, end) = (tiles[0].seen[which].0, tiles[tiles.len() - 1].seen[which].1);
            for first in (begin / WIDEST * WIDEST..end).step_by(WIDEST) {
                for (tile, scores) in tiles.iter().zip(scores.chunks_exact_mut(ROWS * total)) {
                    let (begin, end) = tile.seen[which];
                    if begin < end && begin < first + WIDEST && first < end {
                        let side = Side::Rows(&self.rows[tile.first * row + head * width..], row);
                        let (panel, y) = (first..end.min(first + WIDEST), &mut scores[from + first..]);
                        past.cache.score(simd, (kv, past.keys), (side, tile.taken), panel, (y, total));
                    }
                }
            }
            from += past.seen.end;
        }
    }

    /// Mixes a head's values by tiles' weights, a run at a time. `y` has the mixed values of the tiles' queries.
    #[inline(always)]
    fn mix<S: Simd>(
        &self,
        simd: S,
        head: usize,
        tiles: &[QueryTile],
        (scores, total): (&[f32], usize),
        y: &mut [f32],
    ) {
        let (wide, kv) = (self.heads.query * self.heads.width, head / self.heads.group());
        let mut from = 0;
        for (which, past) in self.segments.iter().enumerate() {
            let (begin, end) = (tiles[0].seen[which].0, tiles[tiles.len() - 1].seen[which].1);
            for first in (begin / INNER * INNER..end).step_by(INNER) {
                for (tile, scores) in tiles.iter().zip(scores.chunks_exact(ROWS * total)) {
                    let (begin, end) = tile.seen[which];
                    let run = begin.max(first)..end.min(first + INNER);
                    if !run.is_empty() {
                        let begun = run.start > begin || (which > 0 && tile.seen[0].0 < tile.seen[0].1);
                        let weights = (&scores[from + run.start..], total, tile.taken);
                        let y = &mut y[(tile.first - tiles[0].first) * wide + head * self.heads.width..];
                        past.cache.mix(simd, (kv, past.values), weights, run, (y, wide, begun));
                    }
                }
            }
            from += past.seen.end;
        }
    }
}

/// Copies keys of these rows into columns, and values into lines.
pub fn lay(heads: Heads, rows: &[f32], which: &Range<usize>, [columns, lines]: &mut [Vec<f32>; 2]) {
    let cache = Cache::new(heads, which.len());
    columns.resize(cache.columns(), 0.0);
    lines.resize(cache.lines(), 0.0);
    let rows = rows[which.start * heads.row()..which.end * heads.row()].chunks_exact(heads.row());
    cache.put(0, rows, heads.past(), (columns, lines));
}
