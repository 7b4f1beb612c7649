//! Estimates the memory of a run before it starts. Sums saturate at the largest number.

use super::arena::Arena;
use super::arithmetic::Arithmetic;
use super::attention::{Cache, Heads};
use super::half::is_apart;
use super::head;
use super::lora::Adapters;
use super::paired::backward::PairScratch;
use super::{GRADIENTS, Setup};
use crate::model::{Precision, Shape};

/// Returns the bytes of a packed weight.
fn bytes(precision: Precision) -> usize {
    Arithmetic::of(precision).bytes()
}

/// Returns the bytes that the program's allocator, mimalloc 3, takes for this many numbers: up to 512 KiB it has four sizes
/// between two powers of two. What is left of them is in large pages, too, so it is taken whether it is used or not.
fn allocated(numbers: usize) -> usize {
    let bytes = numbers.saturating_mul(4);
    if bytes > 512 << 10 {
        return bytes;
    }
    bytes.next_multiple_of((bytes.max(1).next_power_of_two() / 8).max(8))
}

/// Returns the bytes of the keys and values that sampling keeps.
fn kept(shape: &Shape, setup: &Setup, sampled: Sampled) -> usize {
    let Sampled { rows, answer, together, .. } = sampled;
    let heads = Heads::of(shape, Arithmetic::of(setup.precision));
    // Each answer has its own tokens; a prompt's are shared. One more prompt per thread may continue.
    let prompt = setup.longest.saturating_sub(answer);
    let prompts = rows.div_ceil(together.max(1)).saturating_add(setup.threads);
    let (own, shared) = (Cache::new(heads, answer), Cache::new(heads, prompt));
    let of_layers = |numbers: usize| allocated(shape.layers.saturating_mul(numbers));
    let own = of_layers(own.columns()).saturating_add(of_layers(own.lines()));
    let shared = allocated(shared.columns()).saturating_add(allocated(shared.lines()));
    let shared = shape.layers.saturating_mul(shared);
    // Each thread keeps what prompts begin with, at most a prompt.
    let opening = setup.threads.saturating_mul(prompt).saturating_mul(2 * heads.kv * heads.width);
    let opening = opening.saturating_mul(4 * shape.layers);
    rows.saturating_mul(own).saturating_add(prompts.saturating_mul(shared)).saturating_add(opening)
}

/// Bytes that a run needs, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Number of trained parameters.
    pub trained: usize,
    /// Weights, including the reference and adapters.
    pub weights: usize,
    /// Gradients and the optimizer's moments.
    pub optimizer: usize,
    /// Keys and values while sampling, and the packed weights.
    pub rollouts: usize,
    /// Activations of a micro-batch.
    pub activations: usize,
    /// The copy made to write a checkpoint: the exported weights.
    pub saving: usize,
    /// The second copy of the model, which learns while the first one samples, in a run with a lag.
    pub learner: usize,
}

/// Sizes of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Answers sampled at a time.
    pub rows: usize,
    /// Maximum tokens of an answer.
    pub answer: usize,
    /// Minimum number of consecutive answers to one prompt, which share its keys and values.
    pub together: usize,
    /// Most tokens that are read at once after a prompt.
    pub read: usize,
}

impl Memory {
    /// Returns the memory for a model; micro-batches have at most `micro` tokens or one sequence.
    pub fn of(shape: &Shape, setup: &Setup, sampled: Sampled, micro: usize, recompute: bool) -> Self {
        let Sampled { rows, answer, read, .. } = sampled;
        let arena = Arena::new(shape);
        let adapters = setup.lora.map_or(0, |lora| Adapters::new(&arena, lora).len());
        let trained = if adapters > 0 { adapters } else { arena.len };
        let slices = setup.threads.min(GRADIENTS / (4 * trained).max(1)).max(1);
        let heads = Heads::of(shape, Arithmetic::of(setup.precision));
        let q = heads.query * heads.width;
        let tokens = micro.max(setup.longest);
        let logits = head::AT_ONCE.min(tokens.saturating_mul(shape.vocabulary));
        let copies = 1 + usize::from(setup.reference && adapters == 0);
        // As in `KeptBlock`, and what a backward pass needs besides for one block.
        let apart = 2 * shape.hidden * usize::from(is_apart(shape));
        let inside = match shape.variant.experts {
            // The output of each expert that a token goes through is also kept.
            Some(e) => e.active * (3 * e.intermediate + 2 * shape.hidden + 2) + e.count + shape.hidden,
            None => 3 * shape.intermediate,
        };
        let block = 4 * shape.hidden + apart + arena.qkv_width() + q + inside;
        let blocks = if recompute { block + shape.layers * shape.hidden } else { shape.layers * block };
        let scratch = 3 * shape.hidden + apart + arena.qkv_width() + q + inside;
        // For each head whose gradients are computed at the same time, in bf16: these gradients, and buffers.
        let attention = if heads.in_pairs() {
            let gradients = (3 * heads.width).saturating_mul(setup.longest);
            gradients.saturating_add(PairScratch::size(heads.width, setup.longest))
        } else {
            0
        };
        let prompt = setup.longest.saturating_sub(answer);
        // One token of each answer goes through a block at once, and as many prompts as there are threads.
        let tokens_at_once = rows.saturating_mul(scratch + shape.vocabulary);
        let read = setup.threads.saturating_mul(prompt.max(read)).saturating_mul(block + scratch);
        let laid = arena.len * (bytes(setup.precision) + 4 * usize::from(adapters > 0));
        Self {
            trained,
            weights: 4 * (copies * arena.len + adapters),
            optimizer: 4 * trained * (slices + 2),
            // Adapters are merged into a copy, which is then packed.
            rollouts: kept(shape, setup, sampled)
                .saturating_add(laid)
                .saturating_add(tokens_at_once.saturating_add(read).saturating_mul(4)),
            activations: tokens
                .saturating_mul(blocks + scratch)
                .saturating_add(slices * logits)
                .saturating_add(setup.threads.saturating_mul(attention))
                .saturating_mul(4),
            saving: 4 * arena.len,
            learner: 0,
        }
    }

    /// Adds a second copy of the model: weights, moments and packed weights. Gradients and
    /// activations belong to the copy alone.
    pub fn with_learner(self, precision: Precision) -> Self {
        let laid = self.saving / 4 * bytes(precision) + if self.adapters() { self.saving } else { 0 };
        Self { learner: self.weights + 2 * 4 * self.trained + laid, ..self }
    }

    /// Returns whether adapters are trained: then there are fewer parameters than weights.
    fn adapters(&self) -> bool {
        4 * self.trained < self.saving
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> usize {
        [self.weights, self.optimizer, self.rollouts, self.activations, self.saving, self.learner]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_are_rounded_as_the_allocator_does() {
        // Sizes of mimalloc's, in bytes: 131,072 and then 163,840; 48, 56, 64 and 80.
        for (numbers, bytes) in
            [(32_768, 131_072), (32_769, 163_840), (40_960, 163_840), (12, 48), (13, 56), (17, 80), (0, 0)]
        {
            assert_eq!(allocated(numbers), bytes, "{numbers}");
        }
        assert_eq!(allocated(200_000), 800_000);
        assert_eq!(allocated(usize::MAX), usize::MAX);
    }
}
