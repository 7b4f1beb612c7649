//! Attention of the newest tokens of rows that follow the same prompt, one of each row. The heads that share keys and values are
//! the rows of a tile; alone, a row has fewer of them. The bits are those of a token among many.

use pulp::Simd;

use super::super::attention::{Heads, Past};
use super::super::bf16::pairs;
use super::super::element::Element;
use super::super::softmax::Seen;
use super::super::team::together;
use super::super::unit::{MATRIX_ROWS, Multiply, Pair, ROWS, Unit, WIDEST};
use super::cache::BLOCK;
use super::rows::{Buffers, Rows};

/// Tokens from which on threads share the heads of a row.
const SHARED: usize = 1024;

/// Queries that are computed at a time, which bounds the size of their scores.
const AT_ONCE: usize = 2 * MATRIX_ROWS;

/// The newest tokens of some rows. Several rows see all of their prompt.
#[derive(Clone, Copy)]
pub struct Newest<'a> {
    pub heads: Heads,
    /// Query, key and value of each row's newest token, `[N, row]`.
    pub qkv: &'a [f32],
    pub prompt: &'a Past<'a>,
    /// Each row's own tokens. The newest is the last one.
    pub own: &'a [Past<'a>],
}

impl Newest<'_> {
    /// Computes mixed values, `[N, Q]`. Threads share the heads of one row after many tokens.
    pub fn attend(self, mixed: &mut [f32], threads: usize) {
        let instruction = self.heads.arithmetic.instruction();
        let (heads, width, group) = (self.heads, self.heads.width, self.heads.group());
        let run = |first: usize, count: usize, mixed: &mut [f32]| {
            Buffers::with(|buffers| {
                Pair::run(SomeHeads { newest: self, first, count, mixed, buffers }, instruction);
            });
        };
        let total = self.prompt.seen.end + self.own[0].seen.end;
        if threads == 1 || self.own.len() > 1 || total < SHARED {
            return run(0, heads.query, mixed);
        }
        // Heads that share keys and values are separated only for threads that would have none.
        let each = group.div_ceil(threads.div_ceil(heads.kv));
        let groups = mixed.chunks_mut(group * width).enumerate();
        let parts = groups.flat_map(|(kv, mixed)| {
            let parts = mixed.chunks_mut(each * width).enumerate();
            parts.map(move |(i, mixed)| (kv * group + i * each, mixed))
        });
        together(parts, |(first, mixed)| run(first, mixed.len() / width, mixed));
    }
}

/// Some consecutive heads: all, or some that share keys and values.
struct SomeHeads<'a> {
    newest: Newest<'a>,
    /// The first one.
    first: usize,
    count: usize,
    /// Receives these heads of each row.
    mixed: &'a mut [f32],
    buffers: &'a mut Buffers,
}

impl Multiply for SomeHeads<'_> {
    type Element = Pair;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = Pair>>(self, simd: S, unit: U) {
        let Self { newest, first, count, mixed, buffers } = self;
        let Newest { heads, qkv, prompt, own } = newest;
        let (width, each) = (heads.width, heads.group().min(count));
        let at_once = (AT_ONCE / each).max(1);
        let all = qkv.chunks(at_once * heads.row()).zip(own.chunks(at_once));
        for ((qkv, own), mixed) in all.zip(mixed.chunks_mut(at_once * count * width)) {
            let longest = own.iter().map(|own| own.seen.end).max().unwrap_or(0);
            let tokens = [prompt.seen.end, longest];
            let mut rows = buffers.rows(own.len() * each, prompt.cache.inner(), tokens, width);
            for head in (first..first + count).step_by(each) {
                let group = Group { newest: Newest { qkv, own, ..newest }, head, each };
                group.run((simd, unit), &mut rows);
                let lines = mixed.chunks_exact_mut(count * width).zip(rows.sums.chunks_exact(each * width));
                for (mixed, sums) in lines {
                    mixed[(head - first) * width..][..each * width].copy_from_slice(sums);
                }
            }
        }
    }
}

/// Heads that share keys and values, of some rows.
struct Group<'a> {
    newest: Newest<'a>,
    /// The first head, and how many there are.
    head: usize,
    each: usize,
}

impl Group<'_> {
    #[inline(always)]
    fn run<S: Simd, U: Unit<S, Element = Pair>>(&self, by: (S, U), rows: &mut Rows<'_>) {
        let Newest { heads, qkv, prompt, own } = self.newest;
        let (width, each, kv) = (heads.width, self.each, self.head / heads.group());
        let (inner, stride, places) = (prompt.cache.inner(), rows.stride, rows.places);
        for (row, numbers) in qkv.chunks_exact(heads.row()).enumerate() {
            let heads = numbers[self.head * width..].chunks_exact(width).take(each);
            heads.enumerate().for_each(|(i, query)| rows.query(by.1, row * each + i, query));
        }
        if !prompt.seen.is_empty() {
            let begin = prompt.first_panel();
            let (queries, y) = ((&*rows.queries, rows.count), (&mut rows.scores[begin..], stride));
            prompt.cache.score_pairs(by, (kv, pairs(prompt.keys)), queries, begin..prompt.seen.end, y);
        }
        for (row, own) in own.iter().enumerate() {
            let begin = own.seen.start / WIDEST * WIDEST;
            let queries = (&rows.queries[row * each * inner..], each);
            let y = (&mut rows.scores[row * each * stride + places[1].0 + begin..], stride);
            own.cache.score_pairs(by, (kv, pairs(own.keys)), queries, begin..own.seen.end, y);
        }
        self.weigh(by.1, rows);
        let values = (kv, pairs(prompt.values));
        let weights = (&rows.weights[prompt.seen.start / BLOCK * BLOCK / 2..], rows.apart, rows.count);
        prompt.cache.mix_pairs(by, values, weights, prompt.seen.clone(), (rows.sums, width, false));
        for (row, own) in own.iter().enumerate() {
            let begin = places[1].1 + own.seen.start / BLOCK * BLOCK / 2;
            let weights = (&rows.weights[row * each * rows.apart + begin..], rows.apart, each);
            let y = (&mut rows.sums[row * each * width..], width, !prompt.seen.is_empty());
            own.cache.mix_pairs(by, (kv, pairs(own.values)), weights, own.seen.clone(), y);
        }
    }

    #[inline(always)]
    fn weigh<S: Simd, U: Unit<S, Element = Pair>>(&self, unit: U, rows: &mut Rows<'_>) {
        let Newest { heads, prompt, own, .. } = self.newest;
        for first in (0..rows.count).step_by(ROWS) {
            let taken = ROWS.min(rows.count - first);
            let (mut seen, mut longest) = ([Seen { from: 0, to: 0 }; ROWS], 0);
            for (i, seen) in seen[..taken].iter_mut().enumerate() {
                let own = own[(first + i) / self.each].seen.end;
                let total = prompt.seen.end + own;
                *seen = Seen { from: heads.first_seen(total), to: total };
                longest = own.max(longest);
            }
            let mixed = [prompt.seen.clone(), own[first / self.each].seen.start..longest];
            rows.weigh(unit, heads, first, &seen[..taken], &mixed, &mut [0.0; ROWS]);
        }
    }
}
