//! The backward pass of a head in bf16, a block of queries and a run of tokens at a time
//! ([`attention_back`](super::super::attention_back) has the formulas). Weights P and gradients of scores dS are
//! written as pairs of queries, in panels of tokens, by which the gradients of keys and values are products with queries as
//! the inner index: dKᵀ = Qᵀ dS, dVᵀ = dOᵀ P. So only queries are transposed for them, and the sums when they are complete.

use std::ops::Range;

use pulp::Simd;

use super::super::attention::{Cache, Heads};
use super::super::bf16::{pairs, rounded};
use super::super::gemm::aligned;
use super::super::head_pass::{HeadPass, SegmentLayout};
use super::super::kernels::{capped, exp_below, total, transpose, uncapped};
use super::super::softmax::Seen;
use super::super::unit::{LINE, Multiply, Pair, Side, Tile, Unit, WIDEST};
use super::cache::BLOCK as STEP;
use super::rows::round;

/// Queries of a block, and tokens of a run: what is computed of them stays in a core's cache.
const BLOCK: usize = 128;
const RUN: usize = 512;
/// Queries whose scores are computed at a time.
const SOME: usize = 32;

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
    /// Scores of some queries, and gradients of weights.
    numbers: [Vec<f32>; 2],
    /// Gradients of scores, and weights: panels.
    panels: [Vec<Pair>; 2],
    /// Gradients of scores: rows of pairs of tokens.
    slopes: Vec<Pair>,
    /// Gradients of keys, and of values, transposed.
    sums: [Vec<f32>; 2],
}

impl PairScratch {
    /// Returns the most numbers and pairs of a head of this width for sequences of so many tokens.
    pub fn size(width: usize, tokens: usize) -> usize {
        let inner = width.next_multiple_of(2 * LINE) / 2;
        let of_block = 2 * BLOCK * inner + 2 * width * TURNED + BLOCK * APART;
        let of_run = 2 * SOME * STRIDE + 2 * RUN / WIDEST * PANEL + 2 * width * (2 * WIDEST + LINE);
        (of_block + of_run).saturating_add((2 * width).saturating_mul(tokens))
    }
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
            numbers: numbers.each_mut().map(|numbers| aligned(numbers, SOME * STRIDE)),
            panels: panels.each_mut().map(|panels| aligned(panels, RUN / WIDEST * PANEL)),
            slopes: aligned(slopes, BLOCK * APART),
            sums: sums.each_mut().map(|sums| aligned(sums, width * stride)),
            stride,
            ends: [[0.0; 2]; BLOCK],
        };
        for first in (0..pass.span.own.len()).step_by(BLOCK) {
            (block.first, block.count) = (first, BLOCK.min(pass.span.own.len() - first));
            block.read(unit);
            let drows = &mut drows[(pass.span.prompt.len() + first) * 3 * width..];
            let mut begun = false;
            for segment in &segments {
                block.segment((simd, unit), segment, (drows, &mut begun));
            }
        }
        // What no query sees of a prompt has no sums.
        let unseen = pass.heads.first_seen(segments[1].before + 1).min(segments[1].before);
        drows[..unseen * 3 * width].fill(0.0);
        for (segment, from) in segments.iter().zip([unseen, 0]) {
            for (sums, place) in block.sums.iter().zip([width, 2 * width]) {
                let drows = &mut drows[(segment.before + from) * 3 * width + place..];
                let sums = &sums[segment.column + from..];
                turn_back((sums, stride), segment.tokens - from, (drows, width));
            }
        }
    }
}

/// Copies transposed sums of some tokens into their rows, `3 E` apart.
#[inline(always)]
fn turn_back((sums, stride): (&[f32], usize), tokens: usize, (drows, width): (&mut [f32], usize)) {
    for first in (0..tokens).step_by(LINE) {
        for e in (0..width).step_by(LINE) {
            let line = |k: usize| {
                if e + k < width { line_of(&sums[(e + k) * stride..], first) } else { [0.0; LINE] }
            };
            let mut lines = std::array::from_fn(line);
            transpose(&mut lines);
            let rows = drows[first * 3 * width + e..].chunks_mut(3 * width);
            for (row, line) in rows.zip(&lines).take(tokens - first) {
                copy_line(line, &mut row[..LINE.min(width - e)]);
            }
        }
    }
}

/// Returns the product of mixed values with their gradient, which is rounded as where it is multiplied with each value.
#[inline(always)]
fn along(values: &[f32], gradient: &[f32]) -> f32 {
    let mut sums = [0.0; LINE];
    for e in (0..values.len()).step_by(LINE) {
        let (values, gradient) = (line_of(values, e), line_of(gradient, e));
        for l in 0..LINE {
            sums[l] += values[l] * rounded(gradient[l]);
        }
    }
    total(sums)
}

/// Returns the numbers from a place on. What is missing is zero.
#[inline(always)]
fn line_of(numbers: &[f32], from: usize) -> [f32; LINE] {
    let mut line = [0.0; LINE];
    match numbers[from..].first_chunk::<LINE>() {
        Some(whole) => line = *whole,
        None => line.iter_mut().zip(&numbers[from..]).for_each(|(place, number)| *place = *number),
    }
    line
}

#[inline(always)]
fn copy_line<E: Copy>(line: &[E; LINE], places: &mut [E]) {
    match places.first_chunk_mut::<LINE>() {
        Some(whole) => *whole = *line,
        None => places.iter_mut().zip(line).for_each(|(place, number)| *place = *number),
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
    /// Whether its tokens are those of the queries.
    is_own: bool,
}

impl HeadPass<'_> {
    #[inline(always)]
    fn segments(&self) -> [Segment<'_>; 2] {
        let (before, tokens) = (self.span.prompt.len(), self.span.own.len());
        let [first, second] = [before, tokens].map(|tokens| Cache::new(self.heads, tokens));
        let column = first.capacity;
        [
            Segment { cache: first, laid: self.prompt, before: 0, tokens: before, column: 0, is_own: false },
            Segment { cache: second, laid: self.own, before, tokens, column, is_own: true },
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
    fn read<S: Simd, U: Unit<S, Element = Pair>>(&mut self, unit: U) {
        let HeadPass { heads, rows, mixed, span, head, .. } = *self.pass;
        let (width, wide, first) = (heads.width, heads.query * heads.width, span.own.start + self.first);
        let (inner, count) = (Cache::new(heads, 0).inner(), self.count);
        let sides = [(rows, heads.row()), (mixed.gradient, wide)];
        for ((numbers, stride), (rows, turned)) in
            sides.into_iter().zip(self.rows.iter_mut().zip(&mut self.turned))
        {
            let number = |i: usize| &numbers[(first + i) * stride + head * width..][..width];
            for (i, row) in rows.chunks_exact_mut(inner).take(count).enumerate() {
                round(unit, number(i), 1.0, row);
            }
            for i in (0..count).step_by(STEP) {
                for e in (0..width).step_by(LINE) {
                    let line = |i: usize| if i < count { line_of(number(i), e) } else { [0.0; LINE] };
                    let mut lines = [[0; LINE]; LINE];
                    for (k, pairs) in lines.iter_mut().enumerate() {
                        *pairs = unit.both(&[line(i + 2 * k), line(i + 2 * k + 1)]);
                    }
                    transpose(&mut lines);
                    let turned = turned[e * TURNED + i / 2..].chunks_mut(TURNED).take(width - e);
                    turned.zip(&lines).for_each(|(places, line)| copy_line(line, places));
                }
            }
        }
        for (i, ends) in self.ends.iter_mut().take(count).enumerate() {
            let place = (first + i) * wide + head * width;
            let along = along(&mixed.values[place..][..width], &mixed.gradient[place..][..width]);
            *ends = [mixed.log_sums[(first + i) * heads.query + head], along];
        }
    }

    /// Processes a segment. Each query sees those tokens not after it and not before its window. `drows` are the gradients of the
    /// block's queries, which have begun after the first run.
    #[inline(always)]
    fn segment<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        by: (S, U),
        segment: &Segment<'_>,
        (drows, begun): (&mut [f32], &mut bool),
    ) {
        let position = self.pass.span.prompt.len() + self.first;
        let begin = self.pass.heads.first_seen(position + 1).saturating_sub(segment.before);
        let end = segment.tokens.min((position + self.count).saturating_sub(segment.before));
        // Runs begin at a panel.
        for first in (begin / WIDEST * WIDEST..end).step_by(RUN) {
            let run = first..end.min(first + RUN);
            self.weigh(by, segment, run.clone());
            self.spread(by, segment, run, (drows, *begun));
            *begun = true;
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
        let (position, len) = (self.pass.span.prompt.len() + self.first, run.len().next_multiple_of(WIDEST));
        let within = |token: usize| token.saturating_sub(before + run.start).min(run.len());
        let inner = cache.inner();
        for some in (0..self.count).step_by(SOME) {
            // The last token that one of these queries sees, if it is not before the run.
            let last = run.end.min((position + some + SOME).saturating_sub(before)).max(run.start);
            let columns = [&laid.key_columns, &laid.value_columns];
            for ((columns, rows), numbers) in columns.into_iter().zip(&self.rows).zip(&mut self.numbers) {
                let rows = (&rows[some * inner..], SOME.min(self.count - some));
                cache.score_pairs(by, (served, pairs(columns)), rows, run.start..last, (numbers, STRIDE));
            }
            for i in (some..some + SOME).step_by(2) {
                let seen = [i, i + 1].map(|i| {
                    let to = position + i + 1;
                    let seen = Seen { from: within(heads.first_seen(to)), to: within(to) };
                    if i < self.count { seen } else { Seen { from: 0, to: 0 } }
                });
                self.two(by.1, heads, i, len, seen);
            }
        }
    }

    /// Computes weights and gradients of scores of two queries, up to `len` tokens. What they do not see becomes zero.
    #[inline(always)]
    fn two<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        unit: U,
        heads: Heads,
        i: usize,
        len: usize,
        seen: [Seen; 2],
    ) {
        let ([scores, gradients], ends) = (&self.numbers, [self.ends[i], self.ends[i + 1]]);
        let [scores, gradients] = [scores, gradients].map(|numbers| {
            [i, i + 1].map(|i| numbers[i % SOME * STRIDE..][..len].as_chunks::<LINE>().0.as_chunks::<2>().0)
        });
        let from = seen[0].from.min(seen[1].from) / (2 * LINE);
        let to = seen[0].to.max(seen[1].to).div_ceil(2 * LINE);
        for k in 0..len / (2 * LINE) {
            if !(from..to).contains(&k) {
                let place = k / 2 * PANEL + i / 2 * WIDEST + k % 2 * 2 * LINE;
                self.panels.iter_mut().for_each(|panels| panels[place..][..2 * LINE].fill(0));
                for n in 0..2 {
                    self.slopes[(i + n) * APART + k * LINE..][..LINE].fill(0);
                }
                continue;
            }
            let (mut weights, mut slopes) = ([[[0.0; LINE]; 2]; 2], [[[0.0; LINE]; 2]; 2]);
            for n in 0..2 {
                for half in 0..2 {
                    let mask = seen[n].of_line(2 * k + half);
                    let of = (&scores[n][k][half], &gradients[n][k][half]);
                    (weights[half][n], slopes[n][half]) = line(heads, of, &mask, ends[n]);
                }
                let places = &mut self.slopes[(i + n) * APART + k * LINE..];
                copy_line(&unit.adjacent(&slopes[n]), places);
            }
            for half in 0..2 {
                let place = (2 * k + half) / 4 * PANEL + i / 2 * WIDEST + (2 * k + half) % 4 * LINE;
                let slopes = [slopes[0][half], slopes[1][half]];
                copy_line(&unit.both(&slopes), &mut self.panels[0][place..]);
                copy_line(&unit.both(&weights[half]), &mut self.panels[1][place..]);
            }
        }
    }

    /// Adds to the gradients of queries, keys and values. The first block that sees a token begins its sums.
    #[inline(always)]
    fn spread<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        (simd, unit): (S, U),
        segment: &Segment<'_>,
        run: Range<usize>,
        (drows, begun): (&mut [f32], bool),
    ) {
        let (width, served) = (self.pass.heads.width, self.pass.head / self.pass.heads.group());
        let (lines, stride) = ((served, pairs(&segment.laid.key_lines)), self.stride);
        let slopes = (&*self.slopes, APART, self.count);
        segment.cache.mix_pairs((simd, unit), lines, slopes, run.clone(), (drows, 3 * width, begun));
        for (number, token) in run.step_by(WIDEST).enumerate() {
            let sides = self.turned.iter().zip(&self.panels);
            let add = self.first > if segment.is_own { token / BLOCK * BLOCK } else { 0 };
            for ((turned, panels), sums) in sides.zip(&mut self.sums) {
                let panel = (&panels[number * PANEL..][..PANEL], WIDEST);
                for e in (0..width).step_by(U::ROWS) {
                    let (side, taken) = (Side::Rows(&turned[e * TURNED..], TURNED), U::ROWS.min(width - e));
                    let inner = self.count.div_ceil(2);
                    let tile = Tile { side, taken, inner, panel, used: WIDEST, stride, add };
                    tile.wide_by(simd, unit, &mut sums[e * stride + segment.column + token..]);
                }
            }
        }
    }
}

/// Returns a line of weights and of gradients of scores, from scores and the gradients of weights.
#[inline(always)]
fn line(
    heads: Heads,
    (scores, gradients): (&[f32; LINE], &[f32; LINE]),
    mask: &[u32; LINE],
    [log, along]: [f32; 2],
) -> ([f32; LINE], [f32; LINE]) {
    let (mut weights, mut slopes) = ([0.0; LINE], [heads.scale; LINE]);
    match heads.cap {
        None => {
            for l in 0..LINE {
                weights[l] = exp_below(scores[l].mul_add(heads.scale, -log));
            }
        }
        Some(cap) => {
            for l in 0..LINE {
                let score = capped(scores[l] * heads.scale, cap);
                weights[l] = exp_below(score - log);
                slopes[l] *= uncapped(score, cap);
            }
        }
    }
    for l in 0..LINE {
        let slope = weights[l] * (gradients[l] - along) * slopes[l];
        slopes[l] = f32::from_bits(slope.to_bits() & mask[l]);
        weights[l] = f32::from_bits(weights[l].to_bits() & mask[l]);
    }
    (weights, slopes)
}
