//! The backward pass of a head in bf16, a block of queries and a run of tokens at a time
//! ([`attention_back`](super::super::attention_back) has the formulas). Weights P and gradients of scores dS are
//! written as pairs of queries, in panels of tokens, by which the gradients of keys and values are products with queries as
//! the inner index: dKᵀ = Qᵀ dS, dVᵀ = dOᵀ P. So only queries are transposed for them, and the sums when they are complete.

use std::ops::Range;

use pulp::Simd;

use super::super::attention::{Cache, Heads};
use super::super::attention_back::{HeadPass, SegmentLayout};
use super::super::bf16::{pack, pair, upper};
use super::super::gemm::aligned;
use super::super::kernels::{capped, dot, exp, uncapped};
use super::super::softmax::Seen;
use super::super::unit::{LINE, Multiply, Pair, Side, Tile, Unit, WIDEST};
use super::cache::{BLOCK as STEP, pairs};

/// Queries of a block, and tokens of a run: what is computed of them stays in a core's cache.
const BLOCK: usize = 128;
const RUN: usize = 512;

/// Distance between rows of a run's numbers, and of its pairs: an odd number of cache lines, so that rows do not compete for
/// places in the cache.
const STRIDE: usize = RUN + LINE;
const APART: usize = RUN / 2 + LINE;
/// Distance between rows of pairs of queries.
const TURNED: usize = BLOCK / 2 + LINE;
/// Pairs of a panel of queries by tokens.
const PANEL: usize = BLOCK / 2 * WIDEST;

/// Buffers of a head.
#[derive(Clone, Debug, Default)]
pub struct PairScratch {
    /// Rows of queries, and of gradients of what they mix.
    rows: [Vec<Pair>; 2],
    /// The same, transposed: pairs of queries.
    turned: [Vec<Pair>; 2],
    /// Scores, and gradients of weights.
    numbers: [Vec<f32>; 2],
    /// Gradients of scores, and weights: panels.
    panels: [Vec<Pair>; 2],
    /// Gradients of scores: rows of pairs of tokens.
    slopes: Vec<Pair>,
    /// Gradients of keys, and of values, transposed.
    sums: [Vec<f32>; 2],
}

/// Computes a head's gradients, `[tokens of both segments, 3 E]`.
pub struct HeadInPairs<'a> {
    pub pass: HeadPass<'a>,
    pub drows: &'a mut [f32],
    pub scratch: &'a mut PairScratch,
}

impl Multiply for HeadInPairs<'_> {
    type Element = Pair;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = Pair>>(self, simd: S, unit: U) {
        let Self { pass, drows, scratch } = self;
        let PairScratch { rows, turned, numbers, panels, slopes, sums } = scratch;
        let (width, segments) = (pass.heads.width, pass.segments());
        let inner = segments[0].cache.inner();
        let stride = segments[1].column + segments[1].cache.capacity + LINE;
        let mut block = Block {
            pass: &pass,
            first: 0,
            count: 0,
            rows: rows.each_mut().map(|rows| aligned(rows, BLOCK * inner)),
            turned: turned.each_mut().map(|turned| aligned(turned, width * TURNED)),
            numbers: numbers.each_mut().map(|numbers| aligned(numbers, BLOCK * STRIDE)),
            panels: panels.each_mut().map(|panels| aligned(panels, RUN / WIDEST * PANEL)),
            slopes: aligned(slopes, BLOCK * APART),
            sums: sums.each_mut().map(|sums| aligned(sums, width * stride)),
            stride,
            ends: [[0.0; 2]; BLOCK],
        };
        block.sums.iter_mut().for_each(|sums| sums.fill(0.0));
        for first in (0..pass.span.own.len()).step_by(BLOCK) {
            (block.first, block.count) = (first, BLOCK.min(pass.span.own.len() - first));
            block.read();
            let drows = &mut drows[(pass.span.prompt.len() + first) * 3 * width..];
            for segment in &segments {
                block.segment((simd, unit), segment, drows);
            }
        }
        for segment in &segments {
            for (sums, place) in block.sums.iter().zip([width, 2 * width]) {
                let drows = &mut drows[segment.before * 3 * width + place..];
                turn_back((&sums[segment.column..], stride), segment.tokens, (drows, width));
            }
        }
    }
}

/// Copies transposed sums of some tokens into their rows, `3 E` apart.
#[inline(always)]
fn turn_back((sums, stride): (&[f32], usize), tokens: usize, (drows, width): (&mut [f32], usize)) {
    // One cache line at a time, so that both sides stay in the cache.
    for first in (0..tokens).step_by(LINE) {
        let taken = LINE.min(tokens - first);
        for (e, sums) in sums.chunks(stride).take(width).enumerate() {
            let places = drows[first * 3 * width + e..].iter_mut().step_by(3 * width);
            places.zip(&sums[first..first + taken]).for_each(|(place, sum)| *place = *sum);
        }
    }
}

/// A prompt, or the tokens after it.
struct Segment<'a> {
    cache: Cache,
    laid: &'a SegmentLayout,
    /// Tokens before it, and of it.
    before: usize,
    tokens: usize,
    /// Column of its first token's sums.
    column: usize,
}

impl HeadPass<'_> {
    #[inline(always)]
    fn segments(&self) -> [Segment<'_>; 2] {
        let (before, tokens) = (self.span.prompt.len(), self.span.own.len());
        let [first, second] = [before, tokens].map(|tokens| Cache::new(self.heads, tokens));
        let column = first.capacity;
        [
            Segment { cache: first, laid: self.prompt, before: 0, tokens: before, column: 0 },
            Segment { cache: second, laid: self.own, before, tokens, column },
        ]
    }
}

/// Some consecutive queries of a head.
struct Block<'a> {
    pass: &'a HeadPass<'a>,
    /// The first one, and how many there are.
    first: usize,
    count: usize,
    rows: [&'a mut [Pair]; 2],
    turned: [&'a mut [Pair]; 2],
    numbers: [&'a mut [f32]; 2],
    panels: [&'a mut [Pair]; 2],
    slopes: &'a mut [Pair],
    sums: [&'a mut [f32]; 2],
    /// Distance between rows of sums.
    stride: usize,
    /// The logarithm of each query's sum, and what it mixes times the gradient of that.
    ends: [[f32; 2]; BLOCK],
}

impl Block<'_> {
    /// Rounds queries and gradients, as rows and transposed, with zeros up to a whole step of queries.
    #[inline(always)]
    fn read(&mut self) {
        let HeadPass { heads, rows, mixed, span, head, .. } = *self.pass;
        let (width, wide, first) = (heads.width, heads.query * heads.width, span.own.start + self.first);
        let inner = Cache::new(heads, 0).inner();
        let sides = [(rows, heads.row()), (mixed.gradient, wide)];
        for ((numbers, stride), (rows, turned)) in
            sides.into_iter().zip(self.rows.iter_mut().zip(&mut self.turned))
        {
            let number = |i: usize| &numbers[(first + i) * stride + head * width..][..width];
            for (i, row) in rows.chunks_exact_mut(inner).take(self.count).enumerate() {
                pack(number(i), row);
            }
            for i in (0..self.count.next_multiple_of(STEP)).step_by(2) {
                let places = turned[i / 2..].iter_mut().step_by(TURNED);
                if i + 1 < self.count {
                    let both = number(i).iter().zip(number(i + 1));
                    places.zip(both).for_each(|(place, (a, b))| *place = pair(*a, *b));
                } else if i < self.count {
                    places.zip(number(i)).for_each(|(place, a)| *place = pair(*a, 0.0));
                } else {
                    places.take(width).for_each(|place| *place = 0);
                }
            }
        }
        for (i, ends) in self.ends.iter_mut().take(self.count).enumerate() {
            let place = (first + i) * wide + head * width;
            let along = dot(&mixed.values[place..][..width], &mixed.gradient[place..][..width]);
            *ends = [mixed.log_sums[(first + i) * heads.query + head], along];
        }
    }

    /// Processes a segment. Each query sees those tokens not after it and not before its window. `drows` are the gradients of the
    /// block's queries.
    #[inline(always)]
    fn segment<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        by: (S, U),
        segment: &Segment<'_>,
        drows: &mut [f32],
    ) {
        let position = self.pass.span.prompt.len() + self.first;
        let begin = self.pass.heads.first_seen(position + 1).saturating_sub(segment.before);
        let end = segment.tokens.min((position + self.count).saturating_sub(segment.before));
        // Runs begin at a panel.
        for first in (begin / WIDEST * WIDEST..end).step_by(RUN) {
            let run = first..end.min(first + RUN);
            self.weigh(by, segment, run.clone());
            self.spread(by, segment, run, drows);
        }
    }

    /// Computes weights and gradients of scores.
    #[inline(always)]
    fn weigh<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        by: (S, U),
        segment: &Segment<'_>,
        run: Range<usize>,
    ) {
        let Segment { cache, laid, before, .. } = *segment;
        let (heads, served) = (self.pass.heads, self.pass.head / self.pass.heads.group());
        let columns = [&laid.key_columns, &laid.value_columns];
        for ((columns, rows), numbers) in columns.into_iter().zip(&self.rows).zip(&mut self.numbers) {
            let columns = (served, pairs(columns));
            cache.score_pairs(by, columns, (rows, self.count), run.clone(), (numbers, STRIDE));
        }
        let (position, len) = (self.pass.span.prompt.len() + self.first, run.len().next_multiple_of(WIDEST));
        let within = |token: usize| token.saturating_sub(before + run.start).min(run.len());
        for i in (0..self.count.next_multiple_of(STEP)).step_by(2) {
            let seen = [i, i + 1].map(|i| {
                let to = position + i + 1;
                let seen = Seen { from: within(heads.first_seen(to)), to: within(to) };
                if i < self.count { seen } else { Seen { from: 0, to: 0 } }
            });
            self.two(heads, i, len, seen);
        }
    }

    /// Computes weights and gradients of scores of two queries, up to `len` tokens. What they do not see becomes zero.
    #[inline(always)]
    fn two(&mut self, heads: Heads, i: usize, len: usize, seen: [Seen; 2]) {
        let [slope_panels, weight_panels] = &mut self.panels;
        for at in (0..len).step_by(LINE) {
            let (mut weights, mut slopes) = ([[0; LINE]; 2], [[0; LINE]; 2]);
            for (n, seen) in seen.iter().enumerate() {
                let place = (i + n) * STRIDE + at;
                let [scores, gradients] = &self.numbers;
                let (scores, gradients) = (&scores[place..][..LINE], &gradients[place..][..LINE]);
                let (mask, [log, along]) = (seen.of_line(at / LINE), self.ends[(i + n) % BLOCK]);
                for l in 0..LINE {
                    let (score, bent) = match heads.cap {
                        None => (scores[l] * heads.scale, heads.scale),
                        Some(cap) => {
                            let score = capped(scores[l] * heads.scale, cap);
                            (score, heads.scale * uncapped(score, cap))
                        }
                    };
                    let weight = exp(score - log);
                    let slope = weight * (gradients[l] - along) * bent;
                    (weights[n][l], slopes[n][l]) = (upper(weight) & mask[l], upper(slope) & mask[l]);
                }
                let (both, _) = slopes[n].as_chunks::<2>();
                let places = &mut self.slopes[(i + n) * APART + at / 2..][..LINE / 2];
                places.iter_mut().zip(both).for_each(|(place, [a, b])| *place = a >> 16 | b);
            }
            let place = at / WIDEST * PANEL + i / 2 * WIDEST + at % WIDEST;
            for (panels, [first, second]) in [(&mut *weight_panels, weights), (&mut *slope_panels, slopes)] {
                let places = &mut panels[place..][..LINE];
                for l in 0..LINE {
                    places[l] = first[l] >> 16 | second[l];
                }
            }
        }
    }

    /// Adds to the gradients of queries, keys and values.
    #[inline(always)]
    fn spread<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        (simd, unit): (S, U),
        segment: &Segment<'_>,
        run: Range<usize>,
        drows: &mut [f32],
    ) {
        let (width, served) = (self.pass.heads.width, self.pass.head / self.pass.heads.group());
        let (lines, stride) = ((served, pairs(&segment.laid.key_lines)), self.stride);
        let slopes = (&*self.slopes, APART, self.count);
        segment.cache.mix_pairs((simd, unit), lines, slopes, run.clone(), (drows, 3 * width, true));
        for (number, token) in run.step_by(WIDEST).enumerate() {
            let sides = self.turned.iter().zip(&self.panels);
            for ((turned, panels), sums) in sides.zip(&mut self.sums) {
                let panel = (&panels[number * PANEL..][..PANEL], WIDEST);
                for e in (0..width).step_by(U::ROWS) {
                    let (side, taken) = (Side::Rows(&turned[e * TURNED..], TURNED), U::ROWS.min(width - e));
                    let inner = self.count.div_ceil(2);
                    let tile = Tile { side, taken, inner, panel, used: WIDEST, stride, add: true };
                    tile.wide_by(simd, unit, &mut sums[e * stride + segment.column + token..]);
                }
            }
        }
    }
}
