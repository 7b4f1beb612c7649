//! Sampling many answers at once on the CPU.
//!
//! A prompt is read once, and all its answers share what was read. Answers are made a token at a time
//! in tiles of [`TILE`] rows, one tile a thread; a finished answer leaves its row to the next. A row's
//! numbers depend on its own tokens alone, to the last bit: every matrix product has the same
//! shape whatever else is being sampled, so batch size and order change nothing.

use std::sync::Arc;

use gemm::Parallelism;
use rayon::prelude::*;

use super::attention::attend_one;
use super::block::{Block, Kept, Rotations, Scratch, Weights, sized};
use super::head::Head;
use super::kernels::{norm, rotate, swiglu};
use super::lora::Place;
use crate::core::{Answered, Request};
use crate::draft::Draft;
use crate::sampler::Sampling;

/// Rows of a tile.
pub const TILE: usize = 32;

/// What was read of a prompt.
struct Prefix {
    /// Keys and values of each block, `[T, KV]` each.
    blocks: Vec<(Vec<f32>, Vec<f32>)>,
    tokens: usize,
    /// The final stream at the prompt's last token, `[D]`.
    last: Vec<f32>,
}

/// Keys and values of an answer, `[blocks, room, KV]` each.
type Caches = (Vec<f32>, Vec<f32>);

/// A row of a tile: an answer on its way.
struct Row {
    number: usize,
    prefix: Arc<Prefix>,
    /// Keys and values of the answer so far, `[blocks, room, KV]` each.
    keys: Vec<f32>,
    values: Vec<f32>,
    draft: Draft,
}

/// Room for a tile's numbers.
#[derive(Default)]
struct Room {
    x: Vec<f32>,
    normed: Vec<f32>,
    scales: Vec<f32>,
    qkv: Vec<f32>,
    mixed: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    logits: Vec<f32>,
    scores: Vec<f32>,
}

/// What sampling needs to know.
pub struct Decode<'a> {
    /// The model's numbers.
    pub weights: Weights<'a>,
    /// Rotations for every position.
    pub rotations: &'a Rotations,
    /// Tokens that end an answer.
    pub stops: &'a [u32],
    /// Answers at a time.
    pub rows: usize,
    /// Threads that there are.
    pub threads: usize,
}

impl Decode<'_> {
    /// All answers, in the order of the requests.
    pub fn run(&self, requests: &[Request<'_>]) -> Vec<Answered> {
        let mut answers = vec![Answered::default(); requests.len()];
        let mut rows: Vec<Row> = Vec::new();
        let mut free: Vec<Caches> = Vec::new();
        let mut next = 0;
        let mut shared: Option<(&[u32], Arc<Prefix>)> = None;
        let mut rooms: Vec<Room> = Vec::new();
        loop {
            let taken = self.rows.saturating_sub(rows.len()).min(requests.len() - next);
            let fresh = self.admit(&requests[next..next + taken], next, &mut shared, &mut free);
            next += taken;
            rows.extend(fresh);
            if rows.is_empty() {
                return answers;
            }
            // Each fresh row has its first token by now; one that is done at once is not read on.
            Self::retire(&mut rows, &mut answers, &mut free);
            self.advance(&mut rows, &mut rooms);
            Self::retire(&mut rows, &mut answers, &mut free);
        }
    }

    fn retire(rows: &mut Vec<Row>, answers: &mut [Answered], free: &mut Vec<Caches>) {
        let mut at = 0;
        while at < rows.len() {
            if rows[at].draft.done() {
                let row = rows.swap_remove(at);
                free.push((row.keys, row.values));
                answers[row.number] = row.draft.finish();
            } else {
                at += 1;
            }
        }
    }

    /// Rows for these requests, each with its first token drawn.
    fn admit<'r>(
        &self,
        requests: &[Request<'r>],
        first: usize,
        shared: &mut Option<(&'r [u32], Arc<Prefix>)>,
        free: &mut Vec<Caches>,
    ) -> Vec<Row> {
        // One read for each run of one prompt; the last prompt may go on from the call before.
        let mut prompts: Vec<&[u32]> = Vec::new();
        let mut which = Vec::with_capacity(requests.len());
        let same = |a: &[u32], b: &[u32]| std::ptr::eq(a, b) || a == b;
        for request in requests {
            if !prompts.last().is_some_and(|last| same(last, request.prompt)) {
                prompts.push(request.prompt);
            }
            which.push(prompts.len() - 1);
        }
        let known = shared.take();
        let read: Vec<Arc<Prefix>> = prompts
            .par_iter()
            .map(|prompt| match &known {
                Some((old, prefix)) if same(old, prompt) => Arc::clone(prefix),
                _ => Arc::new(self.read(prompt)),
            })
            .collect();
        *shared = prompts.last().zip(read.last()).map(|(p, r)| (*p, Arc::clone(r))).or(known);

        let room: Vec<_> = requests.iter().map(|_| free.pop().unwrap_or_default()).collect();
        requests
            .par_iter()
            .zip(room)
            .zip(which)
            .enumerate()
            .map(|(i, ((request, (mut keys, mut values)), which))| {
                let shape = &self.weights.arena.shape;
                let own = shape.layers * request.sampling.max_tokens as usize * shape.kv_heads * shape.head;
                sized(&mut keys, own);
                sized(&mut values, own);
                let mut row = Row {
                    number: first + i,
                    prefix: Arc::clone(&read[which]),
                    keys,
                    values,
                    draft: Draft::new(request),
                };
                let mut logits = vec![0.0; shape.vocabulary];
                let last = row.prefix.last.clone();
                self.head(row.draft.sampling()).logits(&last, &mut logits);
                row.draft.take(&logits, self.stops);
                row
            })
            .collect()
    }

    /// Reads a prompt.
    fn read(&self, prompt: &[u32]) -> Prefix {
        let arena = self.weights.arena;
        let (d, heads) = (arena.shape.hidden, self.weights.heads());
        let embedding = &self.weights.base[arena.embedding.clone()];
        let mut x: Vec<f32> =
            prompt.iter().flat_map(|t| &embedding[*t as usize * d..][..d]).copied().collect();
        let (mut kept, mut scratch) = (Kept::default(), Scratch::default());
        let (q, kv) = (heads.query * heads.width, heads.kv * heads.width);
        let mut blocks = Vec::with_capacity(arena.blocks.len());
        for layer in 0..arena.blocks.len() {
            let whole: &[std::ops::Range<usize>] = &[std::ops::Range { start: 0, end: prompt.len() }];
            let block = Block {
                weights: self.weights,
                layer,
                rotations: self.rotations,
                sequences: whole,
                threads: Parallelism::None,
            };
            block.forward(&mut x, &mut kept, &mut scratch);
            let of = |from: usize| -> Vec<f32> {
                kept.qkv().chunks_exact(heads.row()).flat_map(|row| &row[from..from + kv]).copied().collect()
            };
            blocks.push((of(q), of(q + kv)));
        }
        let (mut last, mut scale) = (vec![0.0; d], [0.0]);
        let weight = &self.weights.base[arena.norm.clone()];
        norm(&x[x.len() - d..], weight, arena.shape.epsilon as f32, &mut last, &mut scale);
        Prefix { blocks, tokens: prompt.len(), last }
    }

    /// One more token for every row.
    fn advance(&self, rows: &mut [Row], rooms: &mut Vec<Room>) {
        let tiles = rows.len().div_ceil(TILE);
        rooms.resize_with(tiles.max(rooms.len()), Room::default);
        if tiles >= self.threads {
            let all = rows.par_chunks_mut(TILE).zip(rooms.par_iter_mut());
            all.for_each(|(tile, room)| self.tile(tile, room, Parallelism::None));
        } else {
            // Too few tiles to keep all threads busy: they share each product, to the same last bit.
            for (tile, room) in rows.chunks_mut(TILE).zip(rooms) {
                self.tile(tile, room, Parallelism::Rayon(self.threads));
            }
        }
    }

    fn tile(&self, tile: &mut [Row], room: &mut Room, threads: Parallelism) {
        let w = self.weights;
        let (arena, heads) = (w.arena, w.heads());
        let shape = &arena.shape;
        let (d, epsilon) = (shape.hidden, shape.epsilon as f32);
        let (q, kv) = (heads.query * heads.width, heads.kv * heads.width);
        let embedding = &w.base[arena.embedding.clone()];
        let part = |place: &std::ops::Range<usize>| &w.base[place.clone()];

        // Rows past the tile's own are computed along, and looked at by no one.
        let x = sized(&mut room.x, TILE * d);
        for (x, row) in x.chunks_exact_mut(d).zip(tile.iter()) {
            x.copy_from_slice(&embedding[row.draft.newest() as usize * d..][..d]);
        }
        for (layer, block) in arena.blocks.iter().enumerate() {
            let normed = sized(&mut room.normed, TILE * d);
            let scales = sized(&mut room.scales, TILE * (heads.query + heads.kv));
            norm(x, part(&block.norm1), epsilon, normed, scales);
            let qkv = sized(&mut room.qkv, TILE * heads.row());
            w.linear((layer, Place::Qkv, &block.qkv), normed, qkv, false, threads);
            let mixed = sized(&mut room.mixed, TILE * q);
            let rows = tile.iter_mut().zip(qkv.chunks_exact_mut(heads.row())).zip(mixed.chunks_exact_mut(q));
            for ((row, qkv), mixed) in rows {
                if let Some((query, key)) = &block.head_norms {
                    let raw = qkv[..q + kv].to_vec();
                    norm(&raw[..q], part(query), epsilon, &mut qkv[..q], scales);
                    norm(&raw[q..], part(key), epsilon, &mut qkv[q..q + kv], scales);
                }
                let before = row.draft.len() - 1;
                let (cos, sin) = self.rotations.at(row.prefix.tokens + before);
                rotate(&mut qkv[..q + kv], cos, sin);
                let own = layer * row.draft.sampling().max_tokens as usize * kv;
                row.keys[own + before * kv..][..kv].copy_from_slice(&qkv[q..q + kv]);
                row.values[own + before * kv..][..kv].copy_from_slice(&qkv[q + kv..]);
                let past = own..own + (before + 1) * kv;
                let (keys, values) = &row.prefix.blocks[layer];
                let segments = [(&keys[..], &values[..]), (&row.keys[past.clone()], &row.values[past])];
                attend_one(heads, &qkv[..q], segments, mixed, &mut room.scores);
            }
            w.linear((layer, Place::Out, &block.out), mixed, x, true, threads);
            let normed = sized(&mut room.normed, TILE * d);
            norm(x, part(&block.norm2), epsilon, normed, sized(&mut room.scales, TILE));
            let gate_up = sized(&mut room.gate_up, TILE * 2 * shape.intermediate);
            w.linear((layer, Place::GateUp, &block.gate_up), normed, gate_up, false, threads);
            let activated = sized(&mut room.activated, TILE * shape.intermediate);
            swiglu(gate_up, shape.intermediate, activated);
            w.linear((layer, Place::Down, &block.down), activated, x, true, threads);
        }
        let normed = sized(&mut room.normed, TILE * d);
        norm(x, part(&arena.norm), epsilon, normed, sized(&mut room.scales, TILE));
        let logits = sized(&mut room.logits, TILE * shape.vocabulary);
        // Rows of one tile may have temperatures of their own.
        Head { threads, ..self.head(Sampling::default()) }.logits(normed, logits);
        for (row, logits) in tile.iter_mut().zip(logits.chunks_exact_mut(shape.vocabulary)) {
            row.draft.cool(logits);
            row.draft.take(logits, self.stops);
        }
    }

    fn head(&self, sampling: Sampling) -> Head<'_> {
        Head { weights: self.weights, temperature: sampling.divisor(), threads: Parallelism::None }
    }
}
