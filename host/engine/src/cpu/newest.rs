//! Attention of the newest tokens while answers are sampled. Neighbouring rows that follow one prompt read it together.

use rayon::prelude::*;

use super::arena::{BlockMatrix, HeadNormPlaces};
use super::attention::{Cache, Heads, Past};
use super::attention_one::attend_one;
use super::attention_rows::Rows;
use super::decode::{Active, Decode, StepScratch};
use super::half::is_apart;
use super::kernels::{norm, rotate, wide, wide_op};
use super::parked::Parked;
use super::weights::sized;

/// Tokens of a prompt from which on its rows read it together.
const TOGETHER: usize = 64;

impl Decode<'_> {
    /// Computes the first half of a block for some rows, whose products `threads` threads share.
    pub fn attention(&self, layer: usize, tile: &mut [Active], scratch: &mut StepScratch, threads: usize) {
        let (w, heads, n) = (self.weights, self.weights.heads(), tile.len());
        let (block, d, q) = (&w.arena.blocks[layer], w.arena.shape.hidden, heads.query * heads.width);
        let StepScratch { x, normed, scales, qkv, mixed, half, above, scores, parts, .. } = scratch;
        let (normed, scales) = (sized(normed, n * d), sized(scales, n));
        w.enter(block.norm1.as_ref(), x, normed, scales);
        let qkv = sized(qkv, n * heads.row());
        self.laid.of_block(layer, BlockMatrix::Qkv).by(threads, normed, qkv, false, parts);
        if let Some(bias) = &block.matrix(BlockMatrix::Qkv).bias {
            let (rows, bias) = (qkv.chunks_exact_mut(heads.row()), &w.base[bias.clone()]);
            rows.for_each(|row| row.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
        }
        let mixed = sized(mixed, n * q);
        let share = if n < threads { threads } else { 1 };
        let some = |scores: &mut Vec<f32>,
                    ((tile, qkv), mixed): ((&mut [Active], &mut [f32]), &mut [f32])| {
            for (row, qkv) in tile.iter_mut().zip(qkv.chunks_exact_mut(heads.row())) {
                self.place(layer, &mut row.past, qkv, scores);
            }
            self.mix(layer, tile, qkv, mixed, (scores, share));
        };
        if threads == 1 {
            some(scores, ((tile, qkv), mixed));
        } else {
            let each = n.div_ceil(threads);
            let rows = tile.par_chunks_mut(each).zip(qkv.par_chunks_mut(each * heads.row()));
            rows.zip(mixed.par_chunks_mut(each * q)).for_each_init(Vec::new, some);
        }
        let out = self.laid.of_block(layer, BlockMatrix::Out);
        if is_apart(&w.arena.shape) {
            let half = sized(half, n * d);
            out.by(threads, mixed, half, false, parts);
            w.join(block.after1.as_ref(), half, x, scales, above);
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
    fn mix(
        &self,
        layer: usize,
        tile: &[Active],
        qkv: &[f32],
        mixed: &mut [f32],
        (scores, threads): (&mut Vec<f32>, usize),
    ) {
        let heads = self.weights.heads_in(layer);
        let (row, q) = (heads.row(), heads.query * heads.width);
        let mut at = 0;
        for rows in tile.chunk_by(|a, b| is_together(heads, &a.past, &b.past)) {
            let qkv = &qkv[at * row..][..rows.len() * row];
            let mixed = &mut mixed[at * q..][..rows.len() * q];
            at += rows.len();
            match rows {
                [one] => {
                    let segments = segments(heads, layer, &one.past);
                    attend_one(heads, &qkv[..q], &segments, mixed, (scores, threads));
                }
                [first, ..] => {
                    let [prompt, _] = segments(heads, layer, &first.past);
                    let own: Vec<Past<'_>> = rows
                        .iter()
                        .map(|row| segments(heads, layer, &row.past))
                        .map(|[_, own]| own)
                        .collect();
                    wide_op(Rows { heads, rows: qkv, prompt, own: &own, mixed, scores });
                }
                [] => {}
            }
        }
    }
}

/// Returns whether two rows follow one prompt, which is worth reading together, and both see all of it.
fn is_together(heads: Heads, a: &Parked, b: &Parked) -> bool {
    let sees_all = |row: &Parked| heads.first_seen(row.prefix.tokens + row.read + 1) == 0;
    std::ptr::eq(&*a.prefix, &*b.prefix) && a.prefix.tokens >= TOGETHER && sees_all(a) && sees_all(b)
}

/// Returns what a row's newest token sees of the prompt and of the answer.
fn segments(heads: Heads, layer: usize, row: &Parked) -> [Past<'_>; 2] {
    let (tokens, cache, read) = (row.prefix.tokens, row.cache, row.read + 1);
    let begin = heads.first_seen(tokens + read);
    let (keys, values) = &row.prefix.blocks[layer];
    let prompt = Past { cache: Cache::new(heads, tokens), keys, values, seen: begin.min(tokens)..tokens };
    let keys = &row.keys[layer * cache.columns()..][..cache.columns()];
    let values = &row.values[layer * cache.lines()..][..cache.lines()];
    [prompt, Past { cache, keys, values, seen: begin.saturating_sub(tokens)..read }]
}
