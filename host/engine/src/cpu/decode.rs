//! Sampling many answers at once on the CPU.
//!
//! A prompt is [read](super::reading) once. All its answers share the result, including the first token's logits.
//! Answers grow by a token at a time; a finished answer gives its row to the next. A row's bits
//! depend only on its own tokens: products with [`PackedWeights`] are equal for any number of
//! rows and threads. So batch size and order change nothing.
//!
//! An episode's turn is read in one pass after what is kept of the turns before, and continues as a row. Tokens that
//! are read together or one by one give the same bits, so this equals reading the episode anew.
//!
//! If the weights fit into a core's cache, each thread samples its own answers. Otherwise
//! threads share the rows of a token if there are enough for all, else each product. So weights
//! are read from memory once per token, not per thread.

use std::sync::Arc;

use rayon::prelude::*;

use super::arena::BlockMatrix;
use super::attention::Cache;
use super::block::RopeTable;
use super::experts::KeptExperts;
use super::half::is_apart;
use super::head::finish;
use super::kernels::norm;
use super::packed::PackedWeights;
use super::parked::{Caches, Opening, Parked, Prefix};
use super::supply::{Guard, Supply, Wanted};
use super::team::awake;
use super::weights::{Weights, sized};
use crate::core::Answered;
use crate::draft::Draft;
use crate::{Interrupt, Stops};

/// Rows that a thread processes together: their numbers stay in its cache.
const TILE: usize = 64;
/// Maximum number of rows whose products all threads share.
const SHARED: usize = 256;
/// Maximum bytes of weights that stay in a core's cache.
const NEAR: usize = 4 << 20;

/// A row of a tile: an answer that is being generated.
pub struct Active {
    number: usize,
    pub past: Parked,
    draft: Draft,
}

/// Buffers of a tile, kept from one token to the next.
#[derive(Default)]
pub struct StepScratch {
    pub x: Vec<f32>,
    pub normed: Vec<f32>,
    pub scales: Vec<f32>,
    pub qkv: Vec<f32>,
    pub mixed: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    pub half: Vec<f32>,
    pub above: Vec<f32>,
    experts: KeptExperts,
    logits: Vec<f32>,
    pub scores: Vec<f32>,
    /// One buffer for each thread that shares a product.
    pub parts: Vec<Vec<f32>>,
}

/// What was read of prompts.
struct Known<'a> {
    /// What all begin with.
    opening: Opening,
    /// The last one: the next answer may be to it, too.
    last: Option<(&'a [u32], Arc<Prefix>)>,
}

/// Receives complete answers or turns, with the indices of their requests or episodes. Those that the same token
/// completes come together, because each call wakes a thread.
pub type Tell<'a> = &'a (dyn Fn(Vec<(usize, Answered)>) + Sync);

/// Inputs of sampling.
pub struct Decode<'a> {
    /// The model's weights.
    pub weights: Weights<'a>,
    /// The weights packed for products.
    pub laid: &'a PackedWeights,
    /// Cosines and sines for every position.
    pub rope: &'a RopeTable,
    /// Stop tokens and stop texts.
    pub stops: &'a Stops,
    /// Answers sampled at a time.
    pub rows: usize,
    pub threads: usize,
    /// Receives complete answers or turns.
    pub tell: Tell<'a>,
    /// Polled once per token.
    pub interrupt: &'a Interrupt,
}

impl Decode<'_> {
    /// Samples an answer to each request, or the turns of all episodes.
    pub fn run(&self, supply: &Supply<'_>) {
        let rows = self.rows.clamp(1, supply.len().max(1));
        if self.threads == 1 || !self.near() {
            return self.work(supply, rows);
        }
        // Threads with all weights in their caches work independently: a token takes too little time
        // to synchronize after each.
        let each = rows.div_ceil(self.threads);
        (0..self.threads).into_par_iter().with_max_len(1).for_each(|_| {
            let alone = Decode { threads: 1, ..*self };
            alone.work(supply, each);
        });
    }

    /// Returns whether all weights stay in a core's cache.
    fn near(&self) -> bool {
        self.weights.arithmetic.bytes() * self.weights.arena.len <= NEAR
    }

    /// Processes rows until none are left, at most `most` at a time.
    fn work(&self, supply: &Supply<'_>, most: usize) {
        let _guard = Guard(supply);
        let mut rows: Vec<Active> = Vec::new();
        let mut free: Vec<Caches> = Vec::new();
        let mut known = Known { opening: self.open(supply.opening()), last: None };
        let mut rooms: Vec<StepScratch> = Vec::new();
        loop {
            let taken = supply.take(most - rows.len(), rows.is_empty());
            if !taken.is_empty() {
                self.awake(|| rows.extend(self.admit(taken, &mut known, &mut free)));
            }
            if rows.is_empty() || self.interrupt.is_asked() {
                return;
            }
            // Each new row has its first token now; a row that is already finished is not continued.
            self.retire(&mut rows, supply, &mut free);
            self.awake(|| self.advance(&mut rows, &mut rooms));
            self.retire(&mut rows, supply, &mut free);
        }
    }

    /// Calls `work`, whose parts threads share.
    fn awake(&self, work: impl FnOnce()) {
        if self.threads == 1 { work() } else { awake(work) }
    }

    fn retire(&self, rows: &mut Vec<Active>, supply: &Supply<'_>, free: &mut Vec<Caches>) {
        let mut whole = Vec::new();
        // The others stay in order, so that rows that follow one prompt stay neighbours.
        for Active { number, past, draft } in rows.extract_if(.., |row| row.draft.done()) {
            let past = Parked { newest: Some(draft.newest()), ..past };
            free.extend(supply.keep(number, past).map(|past| (past.keys, past.values)));
            whole.push((number, draft.finish()));
        }
        if !whole.is_empty() {
            (self.tell)(whole);
        }
    }

    /// Returns rows for what is wanted, each with its first token drawn.
    fn admit<'r>(
        &self,
        wanted: Vec<Wanted<'r>>,
        known: &mut Known<'r>,
        free: &mut Vec<Caches>,
    ) -> Vec<Active> {
        // Consecutive rows share a read of their prompt; the last prompt may come from the call before.
        let mut prompts: Vec<&[u32]> = Vec::new();
        let mut which = Vec::with_capacity(wanted.len());
        let same = |a: &[u32], b: &[u32]| std::ptr::eq(a, b) || a == b;
        for one in &wanted {
            let begins = one.parked.is_none() && one.beginning.is_none();
            if begins && !prompts.last().is_some_and(|last| same(last, one.prompt)) {
                prompts.push(one.prompt);
            }
            which.push(prompts.len().max(1) - 1);
        }
        let before = known.last.take();
        let opening = &known.opening;
        // With fewer prompts than threads, threads share each product, with the same bits.
        let each = |n: usize| if n < self.threads { self.threads / n.max(1) } else { 1 };
        let read = |prompt: &&'r [u32]| match &before {
            Some((old, prefix)) if same(old, prompt) => Arc::clone(prefix),
            _ => Arc::new(self.read(prompt, opening, each(prompts.len()))),
        };
        let read: Vec<Arc<Prefix>> = if self.threads == 1 {
            prompts.iter().map(read).collect()
        } else {
            prompts.par_iter().map(read).collect()
        };
        known.last = prompts.last().zip(read.last()).map(|(p, r)| (*p, Arc::clone(r))).or(before);

        let threads = each(wanted.len());
        let fresh = |(which, (mut one, caches)): (usize, (Wanted<'_>, Option<Caches>))| {
            let past = one.parked.take().unwrap_or_else(|| {
                // A training row that begins with something else has it for itself.
                let alone = Opening::default();
                let own =
                    one.beginning.as_ref().map(|beginning| Arc::new(self.read(beginning, &alone, threads)));
                self.begin(own.as_ref().unwrap_or_else(|| &read[which]), one.room, caches.unwrap_or_default())
            });
            self.continued(past, &one, threads)
        };
        let caches = |one: &Wanted<'_>, free: &mut Vec<Caches>| {
            if one.parked.is_none() { Some(free.pop().unwrap_or_default()) } else { None }
        };
        let wanted: Vec<_> = wanted.into_iter().map(|one| (caches(&one, free), one)).collect();
        let wanted = wanted.into_iter().map(|(caches, one)| (one, caches));
        if self.threads == 1 {
            which.into_iter().zip(wanted).map(fresh).collect()
        } else {
            let wanted: Vec<_> = which.into_iter().zip(wanted).collect();
            wanted.into_par_iter().map(fresh).collect()
        }
    }

    /// Returns a row of which nothing but the prompt was read, with room for `room` tokens after it.
    fn begin(&self, prefix: &Arc<Prefix>, room: usize, (mut keys, mut values): Caches) -> Parked {
        let layers = self.weights.arena.shape.layers;
        let cache = Cache::new(self.weights.heads(), room);
        sized(&mut keys, layers * cache.columns());
        sized(&mut values, layers * cache.lines());
        Parked { prefix: Arc::clone(prefix), keys, values, cache, read: 0, newest: None }
    }

    /// Returns a row with its first token drawn, after reading what comes before it.
    fn continued(&self, mut past: Parked, wanted: &Wanted<'_>, threads: usize) -> Active {
        let tokens: Vec<u32> = past.newest.take().into_iter().chain(wanted.read.iter().copied()).collect();
        let mut logits = if tokens.is_empty() {
            past.prefix.logits.clone()
        } else {
            self.read_on(&mut past, &tokens, threads)
        };
        let mut row = Active { number: wanted.number, past, draft: Draft::new(&wanted.request) };
        row.draft.cool(&mut logits);
        row.draft.take(&logits, self.stops);
        row
    }

    /// Adds a token to every row.
    fn advance(&self, rows: &mut [Active], rooms: &mut Vec<StepScratch>) {
        let alone = self.threads == 1 || rows.len() >= self.threads * TILE;
        let size = if alone { rows.len().div_ceil(self.threads).clamp(1, TILE) } else { SHARED };
        let tiles = rows.len().div_ceil(size);
        rooms.resize_with(tiles.max(rooms.len()), StepScratch::default);
        if self.threads == 1 {
            rows.chunks_mut(size).zip(rooms).for_each(|(tile, scratch)| self.tile(tile, scratch, 1));
        } else if alone {
            rows.par_chunks_mut(size).zip(rooms.par_iter_mut()).for_each(|(tile, scratch)| {
                self.tile(tile, scratch, 1);
            });
        } else {
            for (tile, scratch) in rows.chunks_mut(size).zip(rooms) {
                self.tile(tile, scratch, self.threads);
            }
        }
    }

    /// Adds a token to some rows, whose products `threads` threads share.
    fn tile(&self, tile: &mut [Active], scratch: &mut StepScratch, threads: usize) {
        let (w, arena, n) = (self.weights, self.weights.arena, tile.len());
        let (d, vocabulary) = (arena.shape.hidden, arena.shape.vocabulary);
        let x = sized(&mut scratch.x, n * d);
        for (x, row) in x.chunks_exact_mut(d).zip(tile.iter()) {
            w.embed(row.draft.newest(), x);
        }
        for layer in 0..arena.blocks.len() {
            self.attention(layer, tile, scratch, threads);
            self.feed_forward(layer, n, scratch, threads);
        }
        let StepScratch { x, normed, scales, logits, parts, .. } = scratch;
        let normed = sized(normed, n * d);
        norm(x, &w.gain(&arena.norm), arena.shape.epsilon as f32, normed, sized(scales, n));
        let logits = sized(logits, n * vocabulary);
        self.laid.head.by(threads, normed, logits, false, parts);
        finish(&arena.shape.variant, logits);
        let draw = |(row, logits): (&mut Active, &mut [f32])| {
            row.past.read += 1;
            row.draft.cool(logits);
            row.draft.take(logits, self.stops);
        };
        if threads == 1 {
            tile.iter_mut().zip(logits.chunks_exact_mut(vocabulary)).for_each(draw);
        } else {
            tile.par_iter_mut().zip(logits.par_chunks_exact_mut(vocabulary)).for_each(draw);
        }
    }

    /// Computes the second half of a block for `n` rows.
    fn feed_forward(&self, layer: usize, n: usize, scratch: &mut StepScratch, threads: usize) {
        let (w, shape) = (self.weights, &self.weights.arena.shape);
        let (block, d) = (&w.arena.blocks[layer], shape.hidden);
        let StepScratch { x, normed, scales, gate_up, activated, half, above, experts, parts, .. } = scratch;
        let (normed, scales) = (sized(normed, n * d), sized(scales, n));
        w.enter(block.norm2.as_ref(), x, normed, scales, 1);
        if let Some(mixture) = w.mixture(layer, threads) {
            mixture.forward(normed, sized(half, n * d), experts);
        } else {
            let gate_up = sized(gate_up, n * 2 * shape.intermediate);
            self.laid.of_block(layer, BlockMatrix::GateUp).by(threads, normed, gate_up, false, parts);
            let activated = sized(activated, n * shape.intermediate);
            w.activate(gate_up, activated, 1);
            let down = self.laid.of_block(layer, BlockMatrix::Down);
            if !is_apart(shape) {
                return down.by(threads, activated, x, true, parts);
            }
            down.by(threads, activated, sized(half, n * d), false, parts);
        }
        w.join(block.after2.as_ref(), half, x, scales, above, 1);
    }
}
