//! What sampling keeps of tokens that were read: keys and values of a prompt, or of an answer so far.
//!
//! They lie as the products of one more token want them: keys in panels of tokens, an index of the head after
//! the other; values in panels of the head's width, a token after the other. So a token's attention reads them
//! from start to end, for all query heads that they serve at once. It comes to the same last bit as
//! [`attend`](super::attention::attend).

use pulp::{Simd, WithSimd};

use super::attention::Heads;
use super::block::sized;
use super::kernels::{softmax, wide_op};
use super::product::{INNER, ROWS, Side, Tile, vectors_of};

/// Keys and values of up to so many tokens, in every block.
#[derive(Clone, Debug, Default)]
pub struct Past {
    keys: Vec<f32>,
    values: Vec<f32>,
    layout: Layout,
}

/// Where the numbers lie.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    kv: usize,
    /// Width of a head.
    width: usize,
    /// Tokens that there is room for: whole panels.
    tokens: usize,
    /// Tokens of a panel of keys.
    across: usize,
    /// Numbers of a head in a panel of values.
    beside: usize,
}

impl Layout {
    fn of(heads: Heads, tokens: usize) -> Self {
        let (across, beside) = (columns(tokens), columns(heads.width));
        let tokens = tokens.next_multiple_of(across);
        Self { kv: heads.kv, width: heads.width, tokens, across, beside }
    }

    /// Numbers of a head's keys in a block.
    fn keys(&self) -> usize {
        self.tokens * self.width
    }

    /// And of its values.
    fn values(&self) -> usize {
        self.tokens * self.width.next_multiple_of(self.beside)
    }

    /// Where a head begins in a block, in units of heads.
    fn head(&self, layer: usize, head: usize) -> usize {
        layer * self.kv + head
    }
}

/// Columns of a panel for so many.
fn columns(wanted: usize) -> usize {
    struct Columns(usize);
    impl WithSimd for Columns {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            vectors_of::<S>(self.0) * S::F32_LANES
        }
    }
    wide_op(Columns(wanted))
}

impl Past {
    /// Makes room for so many tokens in so many blocks; what was there is gone.
    pub fn open(&mut self, heads: Heads, blocks: usize, tokens: usize) {
        self.layout = Layout::of(heads, tokens);
        let heads = blocks * heads.kv;
        // Numbers past the last token are multiplied as well, and their products passed over.
        sized(&mut self.keys, heads * self.layout.keys());
        sized(&mut self.values, heads * self.layout.values());
    }

    /// Bytes that it takes.
    pub fn bytes(heads: Heads, blocks: usize, tokens: usize) -> usize {
        let layout = Layout::of(heads, tokens);
        size_of::<f32>() * blocks * heads.kv * (layout.keys() + layout.values())
    }

    /// Takes in a token's keys and values in a block, `[KV]` each.
    pub fn put(&mut self, layer: usize, token: usize, keys: &[f32], values: &[f32]) {
        let l = self.layout;
        let heads = keys.chunks_exact(l.width).zip(values.chunks_exact(l.width));
        for (head, (key, value)) in heads.enumerate() {
            let place = l.head(layer, head) * l.keys() + token / l.across * l.across * l.width;
            let panel = &mut self.keys[place..][..l.across * l.width];
            for (number, place) in key.iter().zip(panel[token % l.across..].iter_mut().step_by(l.across)) {
                *place = *number;
            }
            let place = l.head(layer, head) * l.values();
            for (i, part) in value.chunks(l.beside).enumerate() {
                let place = place + (i * l.tokens + token) * l.beside;
                self.values[place..][..part.len()].copy_from_slice(part);
            }
        }
    }
}

/// A token's attention in a block: its queries, `[Q]`, over what others share with it and its own past, itself
/// included, so many tokens of each. Mixed values come out, `[Q]`.
pub fn attend_one(
    heads: Heads,
    layer: usize,
    query: &[f32],
    pasts: [(&Past, usize); 2],
    mixed: &mut [f32],
    scores: &mut Vec<f32>,
) {
    wide_op(One { heads, layer, query, pasts, mixed, scores });
}

struct One<'a> {
    heads: Heads,
    layer: usize,
    query: &'a [f32],
    pasts: [(&'a Past, usize); 2],
    mixed: &'a mut [f32],
    scores: &'a mut Vec<f32>,
}

impl WithSimd for One<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, layer, query, pasts, mixed, scores } = self;
        let (width, served) = (heads.width, heads.query / heads.kv);
        let total: usize = pasts.iter().map(|(_, tokens)| tokens).sum();
        let groups = query.chunks_exact(served * width).zip(mixed.chunks_exact_mut(served * width));
        for (head, (query, mixed)) in groups.enumerate() {
            let scores = sized(scores, served * total);
            for row in (0..served).step_by(ROWS) {
                let taken = ROWS.min(served - row);
                let (side, mut at) = (Side::Rows(&query[row * width..], width), row * total);
                for (past, tokens) in pasts {
                    let l = past.layout;
                    let keys = &past.keys[l.head(layer, head) * l.keys()..];
                    for (first, panel) in
                        (0..tokens).step_by(l.across).zip(keys.chunks_exact(l.across * width))
                    {
                        let used = l.across.min(tokens - first);
                        let tile = Tile { side, taken, panel, used, stride: total, add: false };
                        run_tile(simd, l.across, tile, &mut scores[at + first..]);
                    }
                    at += tokens;
                }
            }
            for scores in scores.chunks_exact_mut(total) {
                scores.iter_mut().for_each(|s| *s *= heads.scale());
                softmax(scores);
            }
            for row in (0..served).step_by(ROWS) {
                let taken = ROWS.min(served - row);
                let (mut at, mut add) = (row * total, false);
                for (past, tokens) in pasts {
                    let l = past.layout;
                    let values = &past.values[l.head(layer, head) * l.values()..][..l.values()];
                    for run in (0..tokens).step_by(INNER) {
                        let side = Side::Rows(&scores[at + run..], total);
                        let inner = run * l.beside..tokens.min(run + INNER) * l.beside;
                        let panels = values.chunks_exact(l.tokens * l.beside);
                        for (first, panel) in (0..width).step_by(l.beside).zip(panels) {
                            let (panel, used) = (&panel[inner.clone()], l.beside.min(width - first));
                            let tile = Tile { side, taken, panel, used, stride: width, add };
                            run_tile(simd, l.beside, tile, &mut mixed[row * width + first..]);
                        }
                        add = true;
                    }
                    at += tokens;
                }
            }
        }
    }
}

/// A tile with a panel of so many columns.
#[inline(always)]
fn run_tile<S: Simd>(simd: S, columns: usize, tile: Tile<'_>, y: &mut [f32]) {
    match columns / S::F32_LANES {
        1 => tile.run::<S, 1>(simd, y),
        2 => tile.run::<S, 2>(simd, y),
        _ => tile.run::<S, 4>(simd, y),
    }
}
