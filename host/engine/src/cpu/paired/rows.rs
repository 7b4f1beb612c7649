//! Rows of queries, and their scores, which become weights.

use std::cell::Cell;
use std::ops::Range;

use pulp::Simd;

use super::super::attention::Heads;
use super::super::gemm::aligned;
use super::super::softmax::{Seen, exponentials_of};
use super::super::unit::{LINE, Pair, ROWS, Unit, WIDEST};
use super::cache::BLOCK;

/// Buffers of a thread.
#[derive(Default)]
pub struct Buffers {
    queries: Vec<Pair>,
    scores: Vec<f32>,
    weights: Vec<Pair>,
    sums: Vec<f32>,
}

thread_local! {
    static BUFFERS: Cell<Buffers> = const { Cell::new(Buffers {
        queries: Vec::new(), scores: Vec::new(), weights: Vec::new(), sums: Vec::new(),
    }) };
}

impl Buffers {
    /// Runs with the buffers of this thread. A closure is not compiled for wide vectors: it should only call what is.
    pub fn with(run: impl FnOnce(&mut Self)) {
        let mut buffers = BUFFERS.take();
        run(&mut buffers);
        BUFFERS.set(buffers);
    }

    /// Fills them, for tests of what is read without being written.
    #[cfg(test)]
    pub fn fill(len: usize) {
        let (numbers, pairs) = (|| vec![f32::NAN; len], || vec![Pair::MAX; len]);
        BUFFERS.set(Self { queries: pairs(), scores: numbers(), weights: pairs(), sums: numbers() });
    }

    /// Returns `count` rows for these tokens of a prompt and after it.
    #[inline(always)]
    pub fn rows(&mut self, count: usize, inner: usize, tokens: [usize; 2], width: usize) -> Rows<'_> {
        let [prompt, own] = tokens;
        // An odd number of cache lines: otherwise all rows would compete for a few places in the cache.
        let (stride, apart) = (odd(prompt + own.next_multiple_of(WIDEST)), odd(blocks(prompt) + blocks(own)));
        Rows {
            count,
            inner,
            queries: aligned(&mut self.queries, count * inner),
            scores: aligned(&mut self.scores, count * stride),
            stride,
            weights: aligned(&mut self.weights, count * apart),
            apart,
            places: [(0, 0), (prompt, blocks(prompt))],
            sums: aligned(&mut self.sums, count * width),
        }
    }
}

fn odd(len: usize) -> usize {
    (len.div_ceil(LINE) | 1) * LINE
}

/// Returns the pairs of whole blocks.
fn blocks(tokens: usize) -> usize {
    tokens.next_multiple_of(BLOCK) / 2
}

/// Rows of queries with their scores and weights over a prompt's tokens and those after it.
pub struct Rows<'a> {
    pub count: usize,
    inner: usize,
    pub queries: &'a mut [Pair],
    pub scores: &'a mut [f32],
    /// Distance between rows of scores.
    pub stride: usize,
    pub weights: &'a mut [Pair],
    /// Distance between rows of weights.
    pub apart: usize,
    /// Where a segment begins in a row of scores, and of weights, whose segments are whole blocks.
    pub places: [(usize, usize); 2],
    /// Room for what each row mixes.
    pub sums: &'a mut [f32],
}

impl Rows<'_> {
    /// Rounds a query.
    #[inline(always)]
    pub fn query<S: Simd, U: Unit<S, Element = Pair>>(&mut self, unit: U, row: usize, numbers: &[f32]) {
        round(unit, numbers, 1.0, &mut self.queries[row * self.inner..][..self.inner]);
    }

    /// Turns the scores of at most [`ROWS`] rows from the `first` on into weights, up to whole blocks of those of both
    /// segments' tokens that are mixed. What a row sees is counted from the prompt's first token. Writes the logarithms of the
    /// sums.
    #[inline(always)]
    pub fn weigh<S: Simd, U: Unit<S, Element = Pair>>(
        &mut self,
        unit: U,
        heads: Heads,
        first: usize,
        seen: &[Seen],
        mixed: &[Range<usize>; 2],
        logs: &mut [f32; ROWS],
    ) {
        let (stride, scores) = (self.stride, &mut self.scores[first * self.stride..]);
        // Whole cache lines before the first seen token are skipped.
        let unseen = seen[0].from / LINE * LINE;
        let (mut scale, mut within, mut shares) = (heads.scale, [seen[0]; ROWS], [0.0; ROWS]);
        for (n, seen) in seen.iter().enumerate() {
            within[n] = Seen { from: seen.from - unseen, to: seen.to - unseen };
            scale = heads.cap(&mut scores[n * stride..][unseen..seen.to]);
        }
        let within = &within[..seen.len()];
        exponentials_of(&mut scores[unseen..], stride, within, scale, (&mut shares, logs));
        for (n, seen) in seen.iter().enumerate() {
            let scores = &mut scores[n * stride..][..stride];
            let weights = &mut self.weights[(first + n) * self.apart..][..self.apart];
            for (tokens, (of_scores, of_weights)) in mixed.iter().zip(self.places) {
                if tokens.is_empty() {
                    continue;
                }
                let (begin, end) = (tokens.start / BLOCK * BLOCK, blocks(tokens.end));
                let from = seen.from.saturating_sub(of_scores).clamp(begin, tokens.end);
                let to = seen.to.saturating_sub(of_scores).clamp(from, tokens.end);
                let scores = &mut scores[of_scores + begin..of_scores + to];
                scores[..from - begin].fill(0.0);
                round(unit, scores, shares[n], &mut weights[of_weights + begin / 2..of_weights + end]);
            }
        }
    }
}

/// Rounds adjacent numbers times `share` to whole lines of pairs. What is missing is zero.
#[inline(always)]
pub fn round<S: Simd, U: Unit<S, Element = Pair>>(unit: U, numbers: &[f32], share: f32, pairs: &mut [Pair]) {
    let (lines, _) = pairs.as_chunks_mut::<LINE>();
    let (whole, rest) = numbers.as_chunks::<{ 2 * LINE }>();
    let mut last = [0.0; 2 * LINE];
    last[..rest.len()].copy_from_slice(rest);
    let all = whole.iter().chain((!rest.is_empty()).then_some(&last));
    let used = numbers.len().div_ceil(2 * LINE);
    for (line, numbers) in lines.iter_mut().zip(all) {
        let (halves, _) = numbers.as_chunks::<LINE>();
        *line = unit.adjacent(&[halves[0], halves[1]].map(|half| half.map(|number| number * share)));
    }
    lines[used..].as_flattened_mut().fill(0);
}
