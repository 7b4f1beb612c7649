//! A pass over prompts and answers: embeddings, blocks, head; forward to score, or forward and
//! backward to learn. Sequences are packed without padding. Consecutive answers to one prompt
//! share a single read of it. With groups of sixteen and long prompts, that saves most of the
//! tokens (Prefix Grouper, Liu et al. 2025, arXiv 2506.05433).

use super::attention::Span;
use super::block::{Block, KeptBlock, RopeTable, Scratch};
use super::head::Head;
use super::weights::{Gradients, Weights, sized};
use crate::SamplingMask;
use crate::core::{Sequence, TokenGradients, TokenStatistics};

/// Settings of a pass.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// The model's weights.
    pub weights: Weights<'a>,
    /// Cosines and sines for every position.
    pub rope: &'a RopeTable,
    /// Divisor of the logits.
    pub temperature: f32,
    /// Whether a block's forward pass is recomputed in the backward pass instead of kept: less
    /// memory for a third more work.
    pub recompute: bool,
    /// Threads of each matrix product, and of attention.
    pub threads: usize,
}

/// Buffers of a pass, kept from one to the next.
#[derive(Default)]
pub struct Pass {
    kept: Vec<KeptBlock>,
    inputs: Vec<Vec<f32>>,
    scratch: Scratch,
    x: Vec<f32>,
    dx: Vec<f32>,
    /// The rows that predict an answer's token, before and after the final norm, `[R, D]`.
    last: Vec<f32>,
    normed: Vec<f32>,
    scales: Vec<f32>,
    dlast: Vec<f32>,
    dnormed: Vec<f32>,
    logits: Vec<f32>,
}

impl Pass {
    /// Returns statistics of each answer's tokens.
    pub fn score(&mut self, how: PassContext<'_>, sequences: &[Sequence<'_>]) -> Vec<Vec<TokenStatistics>> {
        let packed = Packed::of(sequences);
        self.forward(how, &packed, false);
        let mut all =
            head(how, &packed).logprob_entropy(&self.normed, &packed.targets, &mut self.logits).into_iter();
        packed.counts.iter().map(|n| all.by_ref().take(*n).collect()).collect()
    }

    /// Runs the forward and backward passes. `loss` receives each sequence's index and the
    /// statistics of its answer, and returns the gradient by them.
    pub fn learn(
        &mut self,
        how: PassContext<'_>,
        sequences: &[Sequence<'_>],
        loss: impl Fn(usize, &[TokenStatistics]) -> TokenGradients,
        gradients: &mut Gradients<'_>,
    ) {
        let packed = Packed::of(sequences);
        self.forward(how, &packed, true);
        let dnormed = sized(&mut self.dnormed, self.normed.len());
        let of = (&self.normed[..], &packed.targets[..], &packed.counts[..]);
        head(how, &packed).learn(of, loss, dnormed, gradients, &mut self.logits);
        self.backward(how, &packed, gradients);
    }

    fn forward(&mut self, how: PassContext<'_>, packed: &Packed<'_>, keep: bool) {
        let arena = how.weights.arena;
        let d = arena.shape.hidden;
        let x = sized(&mut self.x, packed.tokens.len() * d);
        for (x, token) in x.chunks_exact_mut(d).zip(&packed.tokens) {
            how.weights.embed(*token, x);
        }
        let whole = keep && !how.recompute;
        self.kept.resize_with(if whole { arena.blocks.len() } else { 1 }, KeptBlock::default);
        self.inputs.resize_with(if keep && how.recompute { arena.blocks.len() } else { 0 }, Vec::new);
        for layer in 0..arena.blocks.len() {
            if let Some(input) = self.inputs.get_mut(layer) {
                input.clear();
                input.extend_from_slice(x);
            }
            let kept = &mut self.kept[if whole { layer } else { 0 }];
            block(how, layer, &packed.spans).forward(x, kept, &mut self.scratch);
        }
        self.last.clear();
        for row in &packed.foretell {
            self.last.extend_from_slice(&x[row * d..(row + 1) * d]);
        }
        let rows = packed.foretell.len();
        let (normed, scales) = (sized(&mut self.normed, rows * d), sized(&mut self.scales, rows));
        how.weights.enter(Some(&arena.norm), &self.last, normed, scales, how.threads);
    }

    fn backward(&mut self, how: PassContext<'_>, packed: &Packed<'_>, gradients: &mut Gradients<'_>) {
        let arena = how.weights.arena;
        let d = arena.shape.hidden;
        let dlast = sized(&mut self.dlast, self.last.len());
        dlast.fill(0.0);
        let (norm, of) = (Some(&arena.norm), (&self.last[..], &self.scales[..]));
        how.weights.enter_back(norm, of, &self.dnormed, dlast, gradients, how.threads);

        let dx = sized(&mut self.dx, packed.tokens.len() * d);
        dx.fill(0.0);
        for (row, dlast) in packed.foretell.iter().zip(dlast.chunks_exact(d)) {
            dx[row * d..(row + 1) * d].iter_mut().zip(dlast).for_each(|(x, l)| *x += l);
        }
        for layer in (0..arena.blocks.len()).rev() {
            let block = block(how, layer, &packed.spans);
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
            let scale = arena.shape.variant.embedding as f32;
            if scale != 1.0 {
                for d in &mut *dx {
                    *d *= scale;
                }
            }
            for (dx, token) in dx.chunks_exact(d).zip(&packed.tokens) {
                let place = &mut dembedding[*token as usize * d..][..d];
                place.iter_mut().zip(dx).for_each(|(g, d)| *g += d);
            }
        }
    }
}

/// The rows of a packed batch.
struct Packed<'a> {
    spans: Vec<Span>,
    /// The token of each row.
    tokens: Vec<u32>,
    /// The rows that predict the answers' tokens, and these tokens, one answer after the other.
    foretell: Vec<usize>,
    targets: Vec<u32>,
    /// Number of tokens of each answer.
    counts: Vec<usize>,
    /// Tokens that each target was drawn from; empty if all were drawn from the whole vocabulary.
    masks: Vec<&'a [u32]>,
}

impl<'a> Packed<'a> {
    fn of(sequences: &[Sequence<'a>]) -> Self {
        let (mut spans, mut tokens, mut foretell, mut targets) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut prompt = 0..0;
        for (i, sequence) in sequences.iter().enumerate() {
            if i == 0 || !sequence.shares_prompt(&sequences[i - 1]) {
                prompt = tokens.len()..tokens.len() + sequence.prompt;
                tokens.extend_from_slice(&sequence.tokens[..sequence.prompt]);
                spans.push(Span { prompt: 0..0, own: prompt.clone() });
            }
            // The last token is only predicted.
            let Some(read) = sequence.own().checked_sub(1) else { continue };
            let own = tokens.len()..tokens.len() + read;
            tokens.extend_from_slice(&sequence.tokens[sequence.prompt..sequence.read()]);
            // A token is predicted by the row before it: the first one by the prompt's last row.
            let before = |place: usize| match place - sequence.prompt {
                0 => prompt.end - 1,
                after => own.start + after - 1,
            };
            foretell.extend(sequence.generated().map(before));
            targets.extend(sequence.generated().map(|place| sequence.tokens[place]));
            spans.push(Span { prompt: prompt.clone(), own });
        }
        let counts = sequences.iter().map(Sequence::answer).collect();
        // All sequences have a mask or none has, because an update splits them so.
        let masks = sequences.iter().filter_map(|s| s.mask).flat_map(SamplingMask::rows).collect();
        Self { spans, tokens, foretell, targets, counts, masks }
    }
}

fn block<'a>(how: PassContext<'a>, layer: usize, spans: &'a [Span]) -> Block<'a> {
    Block { weights: how.weights, layer, rope: how.rope, spans, threads: how.threads }
}

fn head<'a>(how: PassContext<'a>, packed: &'a Packed<'_>) -> Head<'a> {
    let (temperature, threads) = (how.temperature, how.threads);
    Head { weights: how.weights, temperature, threads, masks: &packed.masks }
}
