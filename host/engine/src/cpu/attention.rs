//! Causal attention over a batch of answers, in tiles. All answers to a prompt share its keys and values.
//! The square of weights is not kept: the backward pass ([`attention_back`](super::attention_back))
//! recomputes each weight from the logarithm of its row's sum (Dao et al. 2022).
//!
//! A token's row is `[Q | K | V]`, as heads of E numbers. Past keys and values are copied to a
//! [`Cache`]: keys as columns for scores, values as lines for mixing. All sums have a fixed
//! order: one token or many at once give the same bits.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::gemm::INNER;
use super::kernels::{capped, copy, wide, wide_op};
use super::softmax::{Seen, softmaxes};
use super::unit::{LINE, ROWS, Side, Tile, WIDEST};
use crate::model::Shape;

/// Tokens that a thread takes at a time.
const SHARE: usize = 8 * ROWS;

/// Attention settings of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
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
    pub fn of(shape: &Shape) -> Self {
        let usual = 1.0 / (shape.head as f32).sqrt();
        Self {
            query: shape.heads,
            kv: shape.kv_heads,
            width: shape.head,
            scale: shape.variant.attention.map_or(usual, |scale| scale as f32),
            cap: shape.variant.attention_cap.map(|cap| cap as f32),
            window: None,
        }
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
/// ends at the capacity. As lines, a head is `[capacity, E]`, with E padded to whole cache lines.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    heads: Heads,
    /// Capacity in tokens: a multiple of the cache line.
    capacity: usize,
}

impl Cache {
    /// Returns the layout for `tokens` tokens.
    pub fn new(heads: Heads, tokens: usize) -> Self {
        Self { heads, capacity: tokens.next_multiple_of(LINE) }
    }

    /// Returns the size of all heads as columns.
    pub fn columns(self) -> usize {
        self.heads.kv * self.heads.width * self.capacity
    }

    /// Returns the size of all heads as lines.
    pub fn lines(self) -> usize {
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
        for (head, numbers) in numbers.chunks_exact(self.heads.width).enumerate() {
            copy(numbers, &mut lines[(head * self.capacity + token) * self.line()..][..numbers.len()]);
        }
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
struct Stretch<'a> {
    heads: Heads,
    /// The tokens' rows.
    rows: &'a [f32],
    /// All keys and values that are there.
    segments: [Past<'a>; 2],
}

impl Stretch<'_> {
    /// Many tokens are shared by threads. A token's bits depend on it alone.
    fn attend(&self, mixed: &mut [f32], log_sums: &mut [f32], scores: &mut Vec<f32>, threads: usize) {
        let (row, query) = (self.heads.query * self.heads.width, self.heads.query);
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
        let Self { stretch: Stretch { heads, rows, segments: [prompt, own] }, scores, .. } = self;
        let (row, width, group) = (heads.row(), heads.width, heads.group());
        let tokens = rows.len() / row;
        let (before, known) = (prompt.seen.end, own.seen.end - tokens);
        let total = (before + own.seen.end).next_multiple_of(LINE);
        scores.resize(ROWS * total, 0.0);
        let last = self.first + self.log_sums.len() / heads.query;
        for first in (self.first..last).step_by(ROWS) {
            let taken = ROWS.min(last - first);
            // From the first token that the tile's first query sees to the last that its last query
            // sees. Tokens that a query does not see get weight 0.
            let begin = heads.first_seen(before + known + first + 1);
            let segments = [
                Past { seen: begin.min(before)..before, ..prompt.clone() },
                Past { seen: begin.saturating_sub(before)..known + first + taken, ..own.clone() },
            ];
            // Whole cache lines before the first seen token are skipped.
            let unseen = begin / LINE * LINE;
            let seen: [Seen; ROWS] = std::array::from_fn(|i| {
                let to = before + known + first + i + 1;
                Seen { from: heads.first_seen(to) - unseen, to: to - unseen }
            });
            let place = first - self.first;
            for head in 0..heads.query {
                let side = Side::Rows(&rows[first * row + head * width..], row);
                score(simd, head / group, (side, taken), &segments, scores, total);
                let mut logs = [0.0; ROWS];
                let seen_scores = &mut scores[unseen..];
                let scale = heads.cap(&mut seen_scores[..taken * total - unseen]);
                softmaxes(seen_scores, total, &seen[..taken], scale, &mut logs);
                for (i, log) in logs.iter().take(taken).enumerate() {
                    self.log_sums[(place + i) * heads.query + head] = *log;
                }
                let y = &mut self.mixed[(place * heads.query + head) * width..];
                mix(simd, head / group, (scores, total, taken), &segments, y, heads.query * width);
            }
        }
    }
}

/// Copies keys of these rows into columns, and values into lines.
fn lay(heads: Heads, rows: &[f32], which: &Range<usize>, [columns, lines]: &mut [Vec<f32>; 2]) {
    let cache = Cache::new(heads, which.len());
    columns.resize(cache.columns(), 0.0);
    lines.resize(cache.lines(), 0.0);
    let [keys, values] = heads.past();
    wide(
        #[inline(always)]
        || {
            let rows = rows[which.start * heads.row()..which.end * heads.row()].chunks_exact(heads.row());
            for (token, row) in rows.enumerate() {
                cache.put_column(token, &row[keys.clone()], columns);
                cache.put_line(token, &row[values.clone()], lines);
            }
        },
    );
}

/// Computes queries' scores with the keys of both segments.
#[inline(always)]
fn score<S: Simd>(
    simd: S,
    head: usize,
    side: (Side<'_>, usize),
    segments: &[Past<'_>; 2],
    scores: &mut [f32],
    stride: usize,
) {
    let mut from = 0;
    for past in segments {
        if !past.seen.is_empty() {
            let first = past.first_panel();
            let y = (&mut scores[from + first..], stride);
            past.cache.score(simd, (head, past.keys), side, first..past.seen.end, y);
        }
        from += past.seen.end;
    }
}

/// Mixes the values of both segments by their weights.
#[inline(always)]
fn mix<S: Simd>(
    simd: S,
    head: usize,
    (weights, apart, taken): (&[f32], usize, usize),
    segments: &[Past<'_>; 2],
    y: &mut [f32],
    stride: usize,
) {
    let (mut from, mut begun) = (0, false);
    for past in segments {
        let weights = (&weights[from + past.seen.start..], apart, taken);
        past.cache.mix(simd, (head, past.values), weights, past.seen.clone(), (y, stride, begun));
        begun |= !past.seen.is_empty();
        from += past.seen.end;
    }
}
