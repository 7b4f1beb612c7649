//! One block of the decoder over a packed batch of prompts and answers. The forward pass keeps intermediate
//! results for the backward pass, which is written by hand. The reference is [`crate::model::Decoder`].
//!
//! Shapes: N tokens of all sequences, D hidden, Q query width, W width of query, key and value,
//! F feed-forward width.

use std::ops::Range;

use rayon::prelude::*;

use super::arena::{Arena, BlockMatrix, HeadNormPlaces};
use super::attention::{AttentionScratch, Heads, Span, attend};
use super::attention_back::{BackScratch, attend_back};
use super::experts::KeptExperts;
use super::half::{is_apart, share};
use super::head_pass::Mixed;
use super::kernels::{norm, norm_back, rotate, rotate_back, wide};
use super::weights::{Gradients, Weights, sized};
use crate::model::Rope;

/// Cosines and sines for each position: one table per distinct rotary embedding.
#[derive(Clone, Debug)]
pub struct RopeTable {
    half: usize,
    /// Cosines and sines, `[positions, E / 2]` each.
    tables: Vec<(Vec<f32>, Vec<f32>)>,
    /// Index of each layer's table, if the layer has one.
    layers: Vec<Option<usize>>,
}

impl RopeTable {
    pub fn new(arena: &Arena, positions: usize) -> Self {
        let (shape, mut ropes) = (&arena.shape, Vec::new());
        let mut which = |layer| {
            let rope = shape.rope(layer)?;
            let known = ropes.iter().position(|known| *known == rope);
            Some(known.unwrap_or_else(|| {
                ropes.push(rope);
                ropes.len() - 1
            }))
        };
        let layers = (0..shape.layers).map(&mut which).collect();
        let table = |rope: &Rope| {
            let (frequencies, factor) = (rope.frequencies(shape.head), rope.factor());
            let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| (p as f32) * f));
            angles.map(|a| (libm::cosf(a) * factor, libm::sinf(a) * factor)).unzip()
        };
        Self { half: shape.head / 2, tables: ropes.into_iter().map(table).collect(), layers }
    }

    /// Returns the cosines and sines of a position in a layer, if the layer has a rotary embedding.
    #[inline(always)]
    pub fn at(&self, layer: usize, position: usize) -> Option<(&[f32], &[f32])> {
        let (cos, sin) = &self.tables[self.layers[layer]?];
        let place = position * self.half..(position + 1) * self.half;
        Some((&cos[place.clone()], &sin[place]))
    }
}

/// Intermediate results of a block's forward pass.
#[derive(Clone, Debug, Default)]
pub struct KeptBlock {
    /// The block's input, `[N, D]`.
    x: Vec<f32>,
    normed1: Vec<f32>,
    scales1: Vec<f32>,
    /// Query and key before their norms, if there are any: `[N, W]`.
    raw: Vec<f32>,
    head_scales: Vec<f32>,
    /// Query, key and value as attention reads them, `[N, W]`.
    qkv: Vec<f32>,
    log_sums: Vec<f32>,
    mixed: Vec<f32>,
    /// Output of attention if it is normed or scaled before it is added to the stream, `[N, D]`.
    half1: Vec<f32>,
    after1: Vec<f32>,
    /// The stream after attention, `[N, D]`.
    middle: Vec<f32>,
    normed2: Vec<f32>,
    scales2: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    /// Output of the feed-forward part in the same case, or if it is a mixture of experts.
    half2: Vec<f32>,
    experts: KeptExperts,
    after2: Vec<f32>,
}

/// Buffers of a pass.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    attention: AttentionScratch,
    attention_back: BackScratch,
    d_width: Vec<f32>,
    half: Vec<f32>,
    above: Vec<f32>,
    q_width: Vec<f32>,
    w_width: Vec<f32>,
    f_width: Vec<f32>,
    f2_width: Vec<f32>,
}

/// A block of a model, over spans of a packed batch.
pub struct Block<'a> {
    /// The model's weights.
    pub weights: Weights<'a>,
    pub layer: usize,
    /// Cosines and sines for every position.
    pub rope: &'a RopeTable,
    /// Prompts and answers.
    pub spans: &'a [Span],
    /// Threads of each matrix product, and of attention.
    pub threads: usize,
}

impl Block<'_> {
    /// Runs the forward pass in place on the stream `x`, `[N, D]`.
    pub fn forward(&self, x: &mut [f32], kept: &mut KeptBlock, scratch: &mut Scratch) {
        self.through(x, kept, scratch, |heads, qkv, mixed, log_sums, scratch| {
            self.turn(qkv, rotate);
            attend(heads, qkv, self.spans, (mixed, log_sums), scratch, self.threads);
        });
    }

    /// Runs the forward pass with another attention: from queries, keys and values before rotary embeddings,
    /// `[N, W]`, to mixed values, `[N, Q]`, and the logarithms of sums, `[N, H]`.
    pub fn through(
        &self,
        x: &mut [f32],
        kept: &mut KeptBlock,
        scratch: &mut Scratch,
        attention: impl FnOnce(Heads, &mut [f32], &mut [f32], &mut [f32], &mut AttentionScratch),
    ) {
        let (w, layer, threads) = (self.weights, self.layer, self.threads);
        let (shape, block, heads) = (&w.arena.shape, &w.arena.blocks[layer], w.heads_in(layer));
        let (n, apart) = (x.len() / shape.hidden, is_apart(shape));

        kept.x.clear();
        kept.x.extend_from_slice(x);
        let normed = sized(&mut kept.normed1, x.len());
        w.enter(block.norm1.as_ref(), x, normed, sized(&mut kept.scales1, n), threads);
        let qkv = sized(&mut kept.qkv, n * heads.row());
        w.linear(layer, BlockMatrix::Qkv, normed, qkv, false, threads);
        if let Some(norms) = &block.head_norms {
            kept.raw.clear();
            kept.raw.extend_from_slice(qkv);
            let scales = sized(&mut kept.head_scales, n * (heads.query + heads.kv));
            self.norm_heads(norms, &kept.raw, qkv, scales);
        }
        let mixed = sized(&mut kept.mixed, n * heads.query * heads.width);
        let log_sums = sized(&mut kept.log_sums, n * heads.query);
        attention(heads, qkv, mixed, log_sums, &mut scratch.attention);
        if apart {
            let half = sized(&mut kept.half1, x.len());
            w.linear(layer, BlockMatrix::Out, mixed, half, false, threads);
            w.join(block.after1.as_ref(), half, x, sized(&mut kept.after1, n), &mut scratch.above, threads);
        } else {
            w.linear(layer, BlockMatrix::Out, mixed, x, true, threads);
        }

        kept.middle.clear();
        kept.middle.extend_from_slice(x);
        let normed = sized(&mut kept.normed2, x.len());
        w.enter(block.norm2.as_ref(), x, normed, sized(&mut kept.scales2, n), threads);
        if let Some(mixture) = w.mixture(layer, threads) {
            mixture.forward(normed, sized(&mut kept.half2, x.len()), &mut kept.experts);
        } else {
            let gate_up = sized(&mut kept.gate_up, n * 2 * shape.intermediate);
            w.linear(layer, BlockMatrix::GateUp, normed, gate_up, false, threads);
            let activated = sized(&mut kept.activated, n * shape.intermediate);
            w.activate(gate_up, activated, threads);
            if !apart {
                return w.linear(layer, BlockMatrix::Down, activated, x, true, threads);
            }
            w.linear(layer, BlockMatrix::Down, activated, sized(&mut kept.half2, x.len()), false, threads);
        }
        w.join(
            block.after2.as_ref(),
            &kept.half2,
            x,
            sized(&mut kept.after2, n),
            &mut scratch.above,
            threads,
        );
    }

    /// Runs the backward pass: replaces the gradient of the output by that of the input, and adds
    /// to the gradients of trained parameters.
    pub fn backward(
        &self,
        dx: &mut [f32],
        kept: &KeptBlock,
        gradients: &mut Gradients<'_>,
        scratch: &mut Scratch,
    ) {
        let (w, layer, threads) = (self.weights, self.layer, self.threads);
        let (shape, block, heads) = (&w.arena.shape, &w.arena.blocks[layer], w.heads_in(layer));
        let (n, f, apart) = (dx.len() / shape.hidden, shape.intermediate, is_apart(shape));

        let mixture = w.mixture(layer, threads);
        if apart || mixture.is_some() {
            let (made, Scratch { half, above, .. }) = ((&kept.half2[..], &kept.after2[..]), &mut *scratch);
            w.join_back(block.after2.as_ref(), made, dx, (half, above), gradients, threads);
        }
        let dnormed = sized(&mut scratch.d_width, dx.len());
        if let Some(mixture) = mixture {
            mixture.backward((&kept.normed2, &scratch.half), &kept.experts, dnormed, gradients);
        } else {
            let dhalf = if apart { &scratch.half } else { &*dx };
            let dactivated = sized(&mut scratch.f_width, n * f);
            let of = (&kept.activated[..], dhalf, &mut *dactivated);
            w.linear_back(gradients, layer, BlockMatrix::Down, of, threads);
            let dgate_up = sized(&mut scratch.f2_width, n * 2 * f);
            w.activate_back(&kept.gate_up, dactivated, dgate_up, threads);
            let of = (&kept.normed2[..], &*dgate_up, &mut *dnormed);
            w.linear_back(gradients, layer, BlockMatrix::GateUp, of, threads);
        }
        w.enter_back(block.norm2.as_ref(), (&kept.middle, &kept.scales2), dnormed, dx, gradients, threads);

        if apart {
            let (made, Scratch { half, above, .. }) = ((&kept.half1[..], &kept.after1[..]), &mut *scratch);
            w.join_back(block.after1.as_ref(), made, dx, (half, above), gradients, threads);
        }
        let dhalf = if apart { &scratch.half } else { &*dx };
        let dmixed = sized(&mut scratch.q_width, n * heads.query * heads.width);
        w.linear_back(gradients, layer, BlockMatrix::Out, (&kept.mixed, dhalf, dmixed), threads);
        let dqkv = sized(&mut scratch.w_width, n * heads.row());
        dqkv.fill(0.0);
        let mixed = Mixed { values: &kept.mixed, log_sums: &kept.log_sums, gradient: dmixed };
        attend_back(heads, &kept.qkv, self.spans, mixed, dqkv, (&mut scratch.attention_back, threads));
        self.turn(dqkv, rotate_back);
        if let Some(norms) = &block.head_norms {
            self.norm_heads_back(norms, kept, dqkv, gradients);
        }
        let dnormed = sized(&mut scratch.d_width, dx.len());
        w.linear_back(gradients, layer, BlockMatrix::Qkv, (&kept.normed1, dqkv, dnormed), threads);
        w.enter_back(block.norm1.as_ref(), (&kept.x, &kept.scales1), dnormed, dx, gradients, threads);
    }

    /// Applies the norms of query and key heads: from `raw`, `[N, W]`, to `qkv`.
    fn norm_heads(&self, norms: &HeadNormPlaces, raw: &[f32], qkv: &mut [f32], scales: &mut [f32]) {
        let (w, heads) = (self.weights, self.weights.heads());
        let [keys, _] = heads.past();
        let (query, key) = (w.gain(&norms.query), w.gain(&norms.key));
        let epsilon = w.arena.shape.epsilon as f32;
        let rows = qkv.chunks_exact_mut(heads.row()).zip(raw.chunks_exact(heads.row()));
        for ((row, raw), scales) in rows.zip(scales.chunks_exact_mut(heads.query + heads.kv)) {
            let (scales_q, scales_k) = scales.split_at_mut(heads.query);
            norm(&raw[..keys.start], &query, epsilon, &mut row[..keys.start], scales_q);
            norm(&raw[keys.clone()], &key, epsilon, &mut row[keys.clone()], scales_k);
        }
    }

    /// Runs their backward pass, in place on the gradient `dqkv`, `[N, W]`.
    fn norm_heads_back(
        &self,
        norms: &HeadNormPlaces,
        kept: &KeptBlock,
        dqkv: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) {
        let (w, heads) = (self.weights, self.weights.heads());
        let [Range { start: q, end: normed }, _] = heads.past();
        let rows = dqkv.chunks_exact_mut(heads.row()).zip(kept.raw.chunks_exact(heads.row()));
        let mut above = vec![0.0; normed];
        let (query, key) = (w.gain(&norms.query), w.gain(&norms.key));
        for ((drow, raw), scales) in rows.zip(kept.head_scales.chunks_exact(heads.query + heads.kv)) {
            above.copy_from_slice(&drow[..normed]);
            drow[..normed].fill(0.0);
            let (scales_q, scales_k) = scales.split_at(heads.query);
            let (dq, dk) = drow[..normed].split_at_mut(q);
            let (raw_q, raw_k) = raw[..normed].split_at(q);
            let (above_q, above_k) = above.split_at(q);
            norm_back(raw_q, &query, scales_q, above_q, dq, gradients.of(&norms.query));
            norm_back(raw_k, &key, scales_k, above_k, dk, gradients.of(&norms.key));
        }
    }

    /// Rotates the queries and keys of every token by its position.
    pub fn turn(&self, qkv: &mut [f32], turn: impl Fn(&mut [f32], &[f32], &[f32]) + Sync) {
        let heads = self.weights.heads();
        let turned = (heads.query + heads.kv) * heads.width;
        for span in self.spans {
            let qkv = &mut qkv[span.own.start * heads.row()..span.own.end * heads.row()];
            let tokens = share(span.own.len(), self.threads);
            qkv.par_chunks_mut(tokens * heads.row()).enumerate().for_each(|(part, qkv)| {
                wide(
                    #[inline(always)]
                    || {
                        let first = span.prompt.len() + part * tokens;
                        for (position, row) in (first..).zip(qkv.chunks_exact_mut(heads.row())) {
                            let Some((cos, sin)) = self.rope.at(self.layer, position) else { return };
                            turn(&mut row[..turned], cos, sin);
                        }
                    },
                );
            });
        }
    }
}

impl KeptBlock {
    /// Returns queries, keys and values of every token as attention reads them, `[N, W]`.
    pub fn qkv(&self) -> &[f32] {
        &self.qkv
    }
}
