//! The backward pass of attention, in the tiles of the forward pass: a block of queries and a
//! run of tokens at a time. Weights are recomputed from the logarithms of their sums.
//!
//! With scores S = Q Kᵀ · scale, weights P, output O = P V and its gradient dO (Dao et al. 2022,
//! section 3.1): dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − Σ dO ∘ O) · scale, dQ = dS K, dK = dSᵀ Q.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::attention::{Cache, Heads, Span};
use super::element::Element as _;
use super::gemm::INNER;
use super::head_pass::{HeadPass, Mixed, SegmentLayout};
use super::kernels::{capped, copy, dot, exp, uncapped, wide, wide_op};
use super::paired::backward::{HeadInPairs, PairScratch};
use super::unit::{Pair, ROWS, Side, Tile, WIDEST};

/// Queries of a block: their weights and gradients for a run of tokens stay in a core's cache.
const BLOCK: usize = 8 * ROWS;

/// Buffers of the pass.
#[derive(Clone, Debug, Default)]
pub struct BackScratch {
    prompt: SegmentLayout,
    own: SegmentLayout,
    /// One for each head that is computed at the same time.
    heads: Vec<HeadScratch>,
}

/// Buffers of a query head.
#[derive(Clone, Debug, Default)]
struct HeadScratch {
    /// A block's queries and the gradients of its outputs: `[BLOCK, E]`, E padded to whole cache lines.
    queries: Vec<f32>,
    gradients: Vec<f32>,
    /// A block's weights, and the gradients of its scores: `[BLOCK, tokens]`.
    weights: Vec<f32>,
    slopes: Vec<f32>,
    /// Gradients by the head's queries, keys and values: `[tokens of both segments, 3 E]`.
    drows: Vec<f32>,
    /// In bf16, what is not the gradients.
    pairs: PairScratch,
}

/// The backward pass of [`attend`](super::attention::attend): adds to the gradient of the rows,
/// including those of prompts.
///
/// Heads that share keys and values add to the same gradients. So that threads can share them, the gradients of each head of
/// a long span are summed apart and then added, head after head: the bits do not depend on the number of threads.
pub fn attend_back(
    heads: Heads,
    rows: &[f32],
    spans: &[Span],
    mixed: Mixed<'_>,
    drows: &mut [f32],
    (scratch, threads): (&mut BackScratch, usize),
) {
    let BackScratch { prompt, own, heads: scratch } = scratch;
    scratch.resize_with(threads.max(1), HeadScratch::default);
    let mut laid = 0..0;
    for span in spans {
        if span.prompt != laid {
            prompt.lay(heads, rows, &span.prompt);
            laid = span.prompt.clone();
        }
        if span.own.is_empty() {
            continue;
        }
        own.lay(heads, rows, &span.own);
        let pass = |head: usize| HeadPass { heads, rows, mixed, span, prompt, own, head };
        if span.own.len() <= BLOCK && !heads.in_pairs() {
            // Each sum of a single block is added once: the same bits without a sum apart.
            for head in 0..heads.query {
                let place = Place::of_batch(heads, span, head);
                wide_op(HeadBack { pass: pass(head), place, drows, scratch: &mut scratch[0] });
            }
            continue;
        }
        for first in (0..heads.query).step_by(scratch.len()) {
            let some = scratch.iter_mut().zip(first..heads.query);
            let apart = |(scratch, head): (&mut HeadScratch, usize)| {
                let mut drows = std::mem::take(&mut scratch.drows);
                let size = (span.prompt.len() + span.own.len()) * 3 * heads.width;
                if heads.in_pairs() {
                    drows.resize(size, 0.0);
                    let of = HeadInPairs { pass: pass(head), drows: &mut drows, scratch: &mut scratch.pairs };
                    Pair::run(of, heads.arithmetic.instruction());
                } else {
                    drows.clear();
                    drows.resize(size, 0.0);
                    let place = Place::apart(heads, span);
                    wide_op(HeadBack { pass: pass(head), place, drows: &mut drows, scratch });
                }
                scratch.drows = drows;
            };
            if threads == 1 || span.own.len() <= BLOCK {
                some.for_each(apart);
            } else {
                some.collect::<Vec<_>>().into_par_iter().for_each(apart);
            }
            for (scratch, head) in scratch.iter().zip(first..heads.query) {
                gather(heads, span, head, &scratch.drows, drows);
            }
        }
    }
}

/// Adds a head's gradients to those of the batch. A prompt's queries have none.
fn gather(heads: Heads, span: &Span, head: usize, apart: &[f32], drows: &mut [f32]) {
    let (width, Place { stride, places, .. }) = (heads.width, Place::of_batch(heads, span, head));
    let (before, rows) = (span.prompt.len(), span.prompt.clone().chain(span.own.clone()));
    wide(
        #[inline(always)]
        || {
            for ((i, row), apart) in rows.enumerate().zip(apart.chunks_exact(3 * width)) {
                let parts = places.iter().zip(apart.chunks_exact(width));
                for (place, apart) in parts.skip(usize::from(i < before)) {
                    let y = &mut drows[row * stride + place..][..width];
                    y.iter_mut().zip(apart).for_each(|(y, x)| *y += x);
                }
            }
        },
    );
}

/// Where a head's gradients are.
#[derive(Clone, Copy)]
struct Place {
    /// Distance between rows.
    stride: usize,
    /// Places in a row of the head's query, and of the key and the value that serve it.
    places: [usize; 3],
    /// Rows of the first tokens of the prompt and of the span's own.
    prompt: usize,
    own: usize,
}

impl Place {
    /// In the rows of the batch.
    fn of_batch(heads: Heads, span: &Span, head: usize) -> Self {
        let ([keys, values], served) = (heads.past(), head / heads.group() * heads.width);
        let places = [head * heads.width, keys.start + served, values.start + served];
        Self { stride: heads.row(), places, prompt: span.prompt.start, own: span.own.start }
    }

    /// In rows of the head's own.
    fn apart(heads: Heads, span: &Span) -> Self {
        let width = heads.width;
        Self { stride: 3 * width, places: [0, width, 2 * width], prompt: 0, own: span.prompt.len() }
    }
}

/// Computes a head's gradients.
struct HeadBack<'a> {
    pass: HeadPass<'a>,
    place: Place,
    drows: &'a mut [f32],
    scratch: &'a mut HeadScratch,
}

impl WithSimd for HeadBack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { pass, place, drows, scratch } = self;
        let HeadPass { heads, rows, mixed, span, prompt, own, head } = pass;
        let HeadScratch { queries, gradients, weights, slopes, .. } = scratch;
        for first in (0..span.own.len()).step_by(BLOCK) {
            let count = BLOCK.min(span.own.len() - first);
            let which = span.own.start + first..span.own.start + first + count;
            let (row, of) = (heads.row(), head * heads.width);
            to_lines(heads.width, &rows[which.start * row + of..], row, count, queries);
            let wide = heads.query * heads.width;
            to_lines(heads.width, &mixed.gradient[which.start * wide + of..], wide, count, gradients);
            let mut block = QueryBlock {
                heads,
                rows,
                mixed,
                which,
                position: span.prompt.len() + first,
                head,
                place,
                row: place.own + first,
                queries: &queries[..],
                gradients: &gradients[..],
                weights,
                slopes,
            };
            let before = span.prompt.len();
            block.segment(simd, prompt, (&span.prompt, 0, place.prompt), before, drows);
            block.segment(simd, own, (&span.own, before, place.own), first + count, drows);
        }
    }
}

/// Copies `count` rows of a head, `stride` apart, into lines.
#[inline(always)]
fn to_lines(width: usize, rows: &[f32], stride: usize, count: usize, lines: &mut Vec<f32>) {
    let line = width.next_multiple_of(super::unit::LINE);
    lines.resize(BLOCK * line, 0.0);
    for (line, row) in lines.chunks_exact_mut(line).zip(rows.chunks(stride)).take(count) {
        copy(&row[..width], &mut line[..width]);
    }
}

/// Some consecutive queries of a head.
struct QueryBlock<'a> {
    heads: Heads,
    rows: &'a [f32],
    mixed: Mixed<'a>,
    /// Rows of the queries.
    which: Range<usize>,
    /// Tokens before the first query.
    position: usize,
    head: usize,
    place: Place,
    /// Row of the first query's gradient.
    row: usize,
    queries: &'a [f32],
    gradients: &'a [f32],
    weights: &'a mut Vec<f32>,
    slopes: &'a mut Vec<f32>,
}

impl QueryBlock<'_> {
    /// Processes a segment with these rows, `before` tokens before it and gradients from a row on. Of its first `tokens`
    /// tokens, each query sees those not after it and not before its window.
    #[inline(always)]
    fn segment<S: Simd>(
        &mut self,
        simd: S,
        laid: &SegmentLayout,
        (segment, before, drow): (&Range<usize>, usize, usize),
        tokens: usize,
        drows: &mut [f32],
    ) {
        let cache = Cache::new(self.heads, segment.len());
        let begin = self.heads.first_seen(self.position + 1).saturating_sub(before);
        if begin >= tokens {
            return;
        }
        // Runs begin at a panel.
        for first in (begin / WIDEST * WIDEST..tokens).step_by(INNER) {
            let run = first..tokens.min(first + INNER);
            self.weigh(simd, cache, laid, run.clone(), before);
            self.spread(simd, cache, laid, run, drow, drows);
        }
    }

    /// Computes weights and gradients of scores, `[queries, tokens]`, for a run of a segment's tokens.
    #[inline(always)]
    fn weigh<S: Simd>(
        &mut self,
        simd: S,
        cache: Cache,
        laid: &SegmentLayout,
        run: Range<usize>,
        before: usize,
    ) {
        let Self { heads, mixed, head, .. } = *self;
        let (width, served, scale) = (heads.width, head / heads.group(), heads.scale);
        let (count, len, wide) = (self.which.len(), run.len(), heads.query * heads.width);
        self.weights.resize(BLOCK * len, 0.0);
        self.slopes.resize(BLOCK * len, 0.0);
        for i in (0..count).step_by(ROWS) {
            let (token, taken) = (self.which.start + i, ROWS.min(count - i));
            let query = Side::Rows(&self.rows[token * heads.row() + head * width..], heads.row());
            let y = &mut self.weights[i * len..];
            cache.score(simd, (served, &laid.key_columns), (query, taken), run.clone(), (y, len));
            let gradient = Side::Rows(&mixed.gradient[token * wide + head * width..], wide);
            let y = &mut self.slopes[i * len..];
            cache.score(simd, (served, &laid.value_columns), (gradient, taken), run.clone(), (y, len));
        }
        let lines = self.weights.chunks_exact_mut(len).zip(self.slopes.chunks_exact_mut(len));
        for (i, (weights, slopes)) in lines.take(count).enumerate() {
            let token = self.which.start + i;
            let place = token * wide + head * width;
            let along = dot(&mixed.values[place..][..width], &mixed.gradient[place..][..width]);
            let log_sum = mixed.log_sums[token * heads.query + head];
            let (to, first) = (self.position + i + 1, before + run.start);
            let within = |token: usize| token.saturating_sub(first).min(len);
            let seen = within(heads.first_seen(to))..within(to);
            let seen_ones = weights[seen.clone()].iter_mut().zip(&mut slopes[seen.clone()]);
            match heads.cap {
                None => {
                    for (weight, slope) in seen_ones {
                        *weight = exp(*weight * scale - log_sum);
                        *slope = *weight * (*slope - along) * scale;
                    }
                }
                Some(cap) => {
                    for (weight, slope) in seen_ones {
                        let score = capped(*weight * scale, cap);
                        *weight = exp(score - log_sum);
                        *slope = *weight * (*slope - along) * scale * uncapped(score, cap);
                    }
                }
            }
            for numbers in [weights, slopes] {
                numbers[..seen.start].fill(0.0);
                numbers[seen.end..].fill(0.0);
            }
        }
    }

    /// Adds to the gradients of queries, keys and values.
    #[inline(always)]
    fn spread<S: Simd>(
        &self,
        simd: S,
        cache: Cache,
        laid: &SegmentLayout,
        run: Range<usize>,
        start: usize,
        drows: &mut [f32],
    ) {
        let Self { heads, head, place: Place { stride, places: [query, key, value], .. }, .. } = *self;
        let (used, served) = (heads.width, head / heads.group());
        let (count, len, line) = (self.which.len(), run.len(), cache.line());
        for i in (0..count).step_by(ROWS) {
            let weights = (&self.slopes[i * len..], len, ROWS.min(count - i));
            let y = &mut drows[(self.row + i) * stride + query..];
            cache.mix(simd, (served, &laid.key_lines), weights, run.clone(), (y, stride, true));
        }
        for (numbers, panel, place) in
            [(&self.slopes, self.queries, key), (&self.weights, self.gradients, value)]
        {
            for token in (0..len).step_by(ROWS) {
                let side = Side::Turned(&numbers[token..count * len], len);
                let (taken, panel) = (ROWS.min(len - token), (panel, line));
                let tile = Tile { side, taken, inner: count, panel, used, stride, add: true };
                tile.wide(simd, &mut drows[(start + run.start + token) * stride + place..]);
            }
        }
    }
}
