//! Attention of the newest tokens while answers are sampled. Neighbouring rows that follow one long prompt read it together.

use std::sync::Arc;

use super::arena::{BlockMatrix, HeadNormPlaces};
use super::attention::{Cache, Heads, Past};
use super::attention_one::attend_one;
use super::attention_rows::Together;
use super::decode::{Active, Decode, StepScratch};
use super::half::is_apart;
use super::kernels::{norm, rotate, wide, wide_op};
use super::paired::newest::Newest;
use super::parked::Parked;
use super::team::together;
use super::weights::sized;

/// Tokens of a prompt that is worth reading together.
const LONG: usize = 64;

impl Decode<'_> {
    /// Computes the first half of a block for some rows, whose products `threads` threads share.
    pub fn attention(&self, layer: usize, tile: &mut [Active], scratch: &mut StepScratch, threads: usize) {
        let (w, heads, n) = (self.weights, self.weights.heads(), tile.len());
        let (block, d, q) = (&w.arena.blocks[layer], w.arena.shape.hidden, heads.query * heads.width);
        let StepScratch { x, normed, scales, qkv, mixed, half, above, scores, parts, .. } = scratch;
        let (normed, scales) = (sized(normed, n * d), sized(scales, n));
        w.enter(block.norm1.as_ref(), x, normed, scales, 1);
        let qkv = sized(qkv, n * heads.row());
        self.laid.of_block(layer, BlockMatrix::Qkv).by(threads, normed, qkv, false, parts);
        if let Some(bias) = &block.matrix(BlockMatrix::Qkv).bias {
            let (rows, bias) = (qkv.chunks_exact_mut(heads.row()), &w.base[bias.clone()]);
            rows.for_each(|row| row.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
        }
        let mixed = sized(mixed, n * q);
        let all = neighbours(w.heads_in(layer), tile, (qkv, mixed), n.div_ceil(threads));
        // With fewer rows than threads each row is by itself, and threads share its heads.
        let share = if n < threads { threads } else { 1 };
        let mix = |scores: &mut Vec<f32>, some: Neighbours<'_>| self.mix(layer, some, (scores, share));
        if threads == 1 {
            all.for_each(|some| mix(scores, some));
        } else {
            together(all, |some| mix(&mut Vec::new(), some));
        }
        let out = self.laid.of_block(layer, BlockMatrix::Out);
        if is_apart(&w.arena.shape) {
            let half = sized(half, n * d);
            out.by(threads, mixed, half, false, parts);
            w.join(block.after1.as_ref(), half, x, scales, above, 1);
        } else {
            out.by(threads, mixed, x, true, parts);
        }
    }

    /// Norms and rotates a row's newest query and key, and puts key and value after those before.
    fn place(&self, layer: usize, row: &mut Parked, qkv: &mut [f32], scales: &mut Vec<f32>) {
        let (w, heads) = (self.weights, self.weights.heads());
        let (q, kv) = (heads.query * heads.width, heads.kv * heads.width);
        if let Some(HeadNormPlaces { query, key }) = &w.arena.blocks[layer].head_norms {
            let (raw, epsilon) = (qkv[..q + kv].to_vec(), w.arena.shape.epsilon as f32);
            let scales = sized(scales, heads.query + heads.kv);
            norm(&raw[..q], &w.gain(query), epsilon, &mut qkv[..q], scales);
            norm(&raw[q..], &w.gain(key), epsilon, &mut qkv[q..q + kv], scales);
        }
        let (before, cache) = (row.read, row.cache);
        let turned = self.rope.at(layer, row.prefix.tokens + before);
        let keys = &mut row.keys[layer * cache.columns()..][..cache.columns()];
        let values = &mut row.values[layer * cache.lines()..][..cache.lines()];
        wide(
            #[inline(always)]
            || {
                if let Some((cos, sin)) = turned {
                    rotate(&mut qkv[..q + kv], cos, sin);
                }
                cache.put_column(before, &qkv[q..q + kv], keys);
                cache.put_line(before, &qkv[q + kv..], values);
            },
        );
    }

    /// Mixes what each row's newest token sees of its prompt and of the answer so far.
    fn mix(&self, layer: usize, some: Neighbours<'_>, (scores, threads): (&mut Vec<f32>, usize)) {
        let Neighbours { rows, qkv, mixed } = some;
        let heads = self.weights.heads_in(layer);
        for (row, qkv) in rows.iter_mut().zip(qkv.chunks_exact_mut(heads.row())) {
            self.place(layer, &mut row.past, qkv, scores);
        }
        match &*rows {
            [first, ..] if heads.in_pairs() => {
                let own: Vec<Past<'_>> = rows.iter().map(|row| own(heads, layer, &row.past)).collect();
                let prompt = &prompt(heads, layer, &first.past);
                Newest { heads, qkv, prompt, own: &own }.attend(mixed, threads);
            }
            [one] => {
                let segments = [prompt(heads, layer, &one.past), own(heads, layer, &one.past)];
                let query = &qkv[..heads.query * heads.width];
                attend_one(heads, query, &segments, mixed, (scores, threads));
            }
            [first, ..] => {
                let own: Vec<Past<'_>> = rows.iter().map(|row| own(heads, layer, &row.past)).collect();
                let prompt = prompt(heads, layer, &first.past);
                wide_op(Together { heads, qkv, prompt, own: &own, mixed, scores });
            }
            [] => {}
        }
    }
}

/// One row, or several that read their prompt together.
struct Neighbours<'a> {
    rows: &'a mut [Active],
    /// Query, key and value of each row's newest token, `[N, row]`.
    qkv: &'a mut [f32],
    /// Receives the mixed values, `[N, Q]`.
    mixed: &'a mut [f32],
}

/// Cuts a tile into neighbours, at most so many.
fn neighbours<'a>(
    heads: Heads,
    tile: &'a mut [Active],
    (mut qkv, mut mixed): (&'a mut [f32], &'a mut [f32]),
    most: usize,
) -> impl Iterator<Item = Neighbours<'a>> {
    let together = tile.chunk_by_mut(move |a, b| is_together(heads, &a.past, &b.past));
    together.flat_map(move |rows| rows.chunks_mut(most)).map(move |rows| {
        let (first, rest) = std::mem::take(&mut qkv).split_at_mut(rows.len() * heads.row());
        let (mixed_first, mixed_rest) =
            std::mem::take(&mut mixed).split_at_mut(rows.len() * heads.query * heads.width);
        (qkv, mixed) = (rest, mixed_rest);
        Neighbours { rows, qkv: first, mixed: mixed_first }
    })
}

/// Returns whether the newest tokens of two rows both see all of one long prompt.
fn is_together(heads: Heads, a: &Parked, b: &Parked) -> bool {
    let sees_all = |row: &Parked| heads.first_seen(row.prefix.tokens + row.read + 1) == 0;
    Arc::ptr_eq(&a.prefix, &b.prefix) && a.prefix.tokens >= LONG && sees_all(a) && sees_all(b)
}

/// Returns what a row's newest token sees of the prompt.
fn prompt(heads: Heads, layer: usize, row: &Parked) -> Past<'_> {
    let (tokens, (keys, values)) = (row.prefix.tokens, &row.prefix.blocks[layer]);
    let begin = heads.first_seen(tokens + row.read + 1);
    Past { cache: Cache::new(heads, tokens), keys, values, seen: begin.min(tokens)..tokens }
}

/// Returns what a row's newest token sees of the answer, itself included.
fn own(heads: Heads, layer: usize, row: &Parked) -> Past<'_> {
    let (tokens, cache, read) = (row.prefix.tokens, row.cache, row.read + 1);
    let begin = heads.first_seen(tokens + read);
    let keys = &row.keys[layer * cache.columns()..][..cache.columns()];
    let values = &row.values[layer * cache.lines()..][..cache.lines()];
    Past { cache, keys, values, seen: begin.saturating_sub(tokens)..read }
}
