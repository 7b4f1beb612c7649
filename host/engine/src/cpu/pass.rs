//! A pass over whole sequences: embeddings, blocks, head; forward alone to score, or forward and
//! backward to learn. Sequences are packed one after the other, without padding.

use std::ops::Range;

use gemm::Parallelism;

use super::block::{Block, Gradients, Kept, Rotations, Scratch, Weights, sized};
use super::head::Head;
use super::kernels::{norm, norm_back};
use crate::core::{Sequence, Thought};

/// How a pass computes.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// The model's numbers.
    pub weights: Weights<'a>,
    /// Rotations for every position.
    pub rotations: &'a Rotations,
    /// What logits are divided by.
    pub temperature: f32,
    /// Whether a block's forward pass is made again in the backward pass, and not kept: less memory
    /// for a third more work.
    pub recompute: bool,
    /// Threads of each matrix product.
    pub threads: Parallelism,
}

/// Room for a pass, kept from one to the next.
#[derive(Default)]
pub struct Pass {
    kept: Vec<Kept>,
    inputs: Vec<Vec<f32>>,
    scratch: Scratch,
    x: Vec<f32>,
    dx: Vec<f32>,
    /// The rows that foretell an answer's token, before and after the final norm, `[R, D]`.
    last: Vec<f32>,
    normed: Vec<f32>,
    scales: Vec<f32>,
    dlast: Vec<f32>,
    dnormed: Vec<f32>,
    logits: Vec<f32>,
}

impl Pass {
    /// What the model thinks of each answer's tokens.
    pub fn score(&mut self, how: How<'_>, sequences: &[Sequence<'_>]) -> Vec<Vec<Thought>> {
        let places = places(sequences);
        self.forward(how, sequences, &places, false);
        self.think(how, sequences)
    }

    /// The same, and then the backward pass: `loss` is given each sequence's number and what the model
    /// thinks of its answer, and answers with the gradient of the loss by each token's
    /// log-probability.
    pub fn learn(
        &mut self,
        how: How<'_>,
        sequences: &[Sequence<'_>],
        loss: impl Fn(usize, &[Thought]) -> Vec<f32>,
        gradients: &mut Gradients<'_>,
    ) {
        let places = places(sequences);
        self.forward(how, sequences, &places, true);
        let thoughts = self.think(how, sequences);
        let mut dlog_probs = Vec::new();
        for (i, thoughts) in thoughts.iter().enumerate() {
            dlog_probs.extend(loss(i, thoughts));
        }
        self.backward(how, sequences, &places, &dlog_probs, gradients);
    }

    fn forward(&mut self, how: How<'_>, sequences: &[Sequence<'_>], places: &[Range<usize>], keep: bool) {
        let arena = how.weights.arena;
        let d = arena.shape.hidden;
        let embedding = &how.weights.base[arena.embedding.clone()];
        let n = places.last().map_or(0, |p| p.end);
        let x = sized(&mut self.x, n * d);
        let read = sequences.iter().flat_map(|s| &s.tokens[..s.read()]);
        for (x, token) in x.chunks_exact_mut(d).zip(read) {
            x.copy_from_slice(&embedding[*token as usize * d..][..d]);
        }
        let whole = keep && !how.recompute;
        self.kept.resize_with(if whole { arena.blocks.len() } else { 1 }, Kept::default);
        self.inputs.resize_with(if keep && how.recompute { arena.blocks.len() } else { 0 }, Vec::new);
        for layer in 0..arena.blocks.len() {
            if let Some(input) = self.inputs.get_mut(layer) {
                input.clear();
                input.extend_from_slice(x);
            }
            let kept = &mut self.kept[if whole { layer } else { 0 }];
            block(how, layer, places).forward(x, kept, &mut self.scratch);
        }
        self.last.clear();
        for (sequence, place) in sequences.iter().zip(places) {
            self.last.extend_from_slice(&x[(place.start + sequence.prompt - 1) * d..place.end * d]);
        }
        let rows = self.last.len() / d;
        let weight = &how.weights.base[arena.norm.clone()];
        let normed = sized(&mut self.normed, rows * d);
        norm(&self.last, weight, arena.shape.epsilon as f32, normed, sized(&mut self.scales, rows));
    }

    fn think(&mut self, how: How<'_>, sequences: &[Sequence<'_>]) -> Vec<Vec<Thought>> {
        let targets = targets(sequences);
        let mut all = head(how).think(&self.normed, &targets, &mut self.logits).into_iter();
        sequences.iter().map(|s| all.by_ref().take(s.answer()).collect()).collect()
    }

    fn backward(
        &mut self,
        how: How<'_>,
        sequences: &[Sequence<'_>],
        places: &[Range<usize>],
        dlog_probs: &[f32],
        gradients: &mut Gradients<'_>,
    ) {
        let arena = how.weights.arena;
        let d = arena.shape.hidden;
        let n = places.last().map_or(0, |p| p.end);
        let dnormed = sized(&mut self.dnormed, self.normed.len());
        let targets = targets(sequences);
        head(how).back(&self.normed, &targets, dlog_probs, dnormed, gradients, &mut self.logits);
        let dlast = sized(&mut self.dlast, self.last.len());
        dlast.fill(0.0);
        let weight = &how.weights.base[arena.norm.clone()];
        norm_back(&self.last, weight, &self.scales, dnormed, dlast, gradients.of(&arena.norm));

        let dx = sized(&mut self.dx, n * d);
        dx.fill(0.0);
        let mut from = 0;
        for (sequence, place) in sequences.iter().zip(places) {
            let rows = sequence.answer() * d;
            let first = (place.start + sequence.prompt - 1) * d;
            dx[first..first + rows].copy_from_slice(&dlast[from..from + rows]);
            from += rows;
        }
        for layer in (0..arena.blocks.len()).rev() {
            let block = block(how, layer, places);
            let kept = if how.recompute {
                let kept = &mut self.kept[0];
                self.x.clone_from(&self.inputs[layer]);
                block.forward(&mut self.x, kept, &mut self.scratch);
                kept
            } else {
                &mut self.kept[layer]
            };
            block.backward(dx, kept, gradients, &mut self.scratch);
        }
        if let Some(dembedding) = gradients.of(&arena.embedding) {
            let read = sequences.iter().flat_map(|s| &s.tokens[..s.read()]);
            for (dx, token) in dx.chunks_exact(d).zip(read) {
                let place = &mut dembedding[*token as usize * d..][..d];
                place.iter_mut().zip(dx).for_each(|(g, d)| *g += d);
            }
        }
    }
}

/// Where each sequence lies in the packed batch.
fn places(sequences: &[Sequence<'_>]) -> Vec<Range<usize>> {
    let mut end = 0;
    let place = |s: &Sequence<'_>| {
        end += s.read();
        end - s.read()..end
    };
    sequences.iter().map(place).collect()
}

fn targets(sequences: &[Sequence<'_>]) -> Vec<u32> {
    sequences.iter().flat_map(|s| &s.tokens[s.prompt..]).copied().collect()
}

fn block<'a>(how: How<'a>, layer: usize, sequences: &'a [Range<usize>]) -> Block<'a> {
    Block { weights: how.weights, layer, rotations: how.rotations, sequences, threads: how.threads }
}

fn head(how: How<'_>) -> Head<'_> {
    Head { weights: how.weights, temperature: how.temperature, threads: how.threads }
}
