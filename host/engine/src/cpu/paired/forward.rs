//! Attention of consecutive tokens, as many queries of a head at a time as matrices take rows.

use pulp::Simd;
use rayon::prelude::*;

use super::super::attention::Stretch;
use super::super::bf16::pairs;
use super::super::element::Element;
use super::super::softmax::Seen;
use super::super::unit::{MATRIX_ROWS, Multiply, Pair, ROWS, Unit, WIDEST};
use super::cache::BLOCK;
use super::rows::{Buffers, Rows};

/// Tokens that a thread takes at a time.
const SHARE: usize = 4 * MATRIX_ROWS;

impl Stretch<'_> {
    /// Many tokens are shared by threads. A token's bits depend on it alone.
    pub fn attend_in_pairs(&self, mixed: &mut [f32], log_sums: &mut [f32], threads: usize) {
        let instruction = self.heads.arithmetic.instruction();
        let (row, query) = (self.heads.query * self.heads.width, self.heads.query);
        let some = |first: usize, mixed: &mut [f32], log_sums: &mut [f32]| {
            Buffers::with(|buffers| {
                Pair::run(Queries { stretch: self, first, mixed, log_sums, buffers }, instruction);
            });
        };
        if threads == 1 || log_sums.len() <= SHARE * query {
            return some(0, mixed, log_sums);
        }
        let shares = mixed.par_chunks_mut(SHARE * row).zip(log_sums.par_chunks_mut(SHARE * query));
        shares.enumerate().for_each(|(i, (mixed, log_sums))| some(i * SHARE, mixed, log_sums));
    }
}

/// Some consecutive tokens of a stretch.
struct Queries<'a> {
    stretch: &'a Stretch<'a>,
    /// The first one.
    first: usize,
    mixed: &'a mut [f32],
    log_sums: &'a mut [f32],
    buffers: &'a mut Buffers,
}

impl Multiply for Queries<'_> {
    type Element = Pair;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = Pair>>(self, simd: S, unit: U) {
        let Self { stretch, first, mixed, log_sums, buffers } = self;
        let (heads, count) = (stretch.heads, log_sums.len() / stretch.heads.query);
        let (wide, inner) = (heads.query * heads.width, stretch.segments[0].cache.inner());
        let tokens = stretch.segments.each_ref().map(|past| past.seen.end);
        // Whole tiles, as many as read a panel from near by.
        let block = if U::MATRICES { MATRIX_ROWS } else { ROWS * ROWS };
        let mut rows = buffers.rows(block.min(count), inner, tokens, 0);
        // A head after the other, so that its keys and values stay in a core's cache.
        for head in 0..heads.query {
            for some in (0..count).step_by(block) {
                rows.count = block.min(count - some);
                let of = (head, first + some);
                let mixed = &mut mixed[some * wide + head * heads.width..];
                let logs = &mut log_sums[some * heads.query + head..];
                stretch.block((simd, unit), &mut rows, of, mixed, logs);
            }
        }
    }
}

impl Stretch<'_> {
    /// Computes a head of some queries, from the `first` on.
    #[inline(always)]
    fn block<S: Simd, U: Unit<S, Element = Pair>>(
        &self,
        by: (S, U),
        rows: &mut Rows<'_>,
        (head, first): (usize, usize),
        mixed: &mut [f32],
        logs: &mut [f32],
    ) {
        let (heads, kv, count) = (self.heads, head / self.heads.group(), rows.count);
        let (row, wide) = (heads.row(), heads.query * heads.width);
        for (i, numbers) in self.rows[first * row..].chunks_exact(row).take(count).enumerate() {
            rows.query(by.1, i, &numbers[head * heads.width..][..heads.width]);
        }
        let tile = self.tile(first, count);
        let seen = tile.seen.map(|(from, to)| from..to);
        for ((past, seen), (place, _)) in self.segments.iter().zip(&seen).zip(rows.places) {
            if !seen.is_empty() {
                let begin = seen.start / WIDEST * WIDEST;
                let y = (&mut rows.scores[place + begin..], rows.stride);
                past.cache.score_pairs(by, (kv, pairs(past.keys)), (rows.queries, count), begin..seen.end, y);
            }
        }
        for some in (0..count).step_by(ROWS) {
            let (taken, mut own) = (ROWS.min(count - some), [0.0; ROWS]);
            let mut each = [Seen { from: 0, to: 0 }; ROWS];
            for (each, to) in each.iter_mut().zip(tile.before + some + 1..) {
                *each = Seen { from: heads.first_seen(to), to };
            }
            rows.weigh(by.1, heads, some, &each[..taken], &seen, &mut own);
            let places = logs[some * heads.query..].iter_mut().step_by(heads.query);
            places.zip(&own[..taken]).for_each(|(place, log)| *place = *log);
        }
        for (which, past) in self.segments.iter().enumerate() {
            let (add, tokens) = (which > 0 && !seen[0].is_empty(), seen[which].clone());
            let place = rows.places[which].1 + tokens.start / BLOCK * BLOCK / 2;
            let weights = (&rows.weights[place..], rows.apart, count);
            past.cache.mix_pairs(by, (kv, pairs(past.values)), weights, tokens, (mixed, wide, add));
        }
    }
}
