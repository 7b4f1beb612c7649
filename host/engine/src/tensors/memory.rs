//! Estimates the memory of a run on a device before it starts.

use crate::cpu::{Adapters, Arena, Memory, Setup};
use crate::model::{Precision, Shape};

/// Bytes of the logits that exist at once and of tensors computed from them.
const LOGITS: usize = 1 << 30;

/// Returns the memory for a model with this shape and setup. Answers are sampled `rows` at a
/// time; micro-batches have at most `micro` tokens or one sequence. Activations are estimated
/// for this crate's kernels; candle's operations keep several times as much.
pub fn memory(shape: &Shape, setup: &Setup, rows: usize, micro: usize, recompute: bool) -> Memory {
    let (arena, longest, precision) = (Arena::new(shape), setup.longest, setup.precision);
    let (all, size) = (arena.len, crate::model::dtype(precision).size_in_bytes());
    let trained = setup.lora.map_or(all, |config| Adapters::new(&arena, config).len());
    let apart = precision != Precision::F32;
    // With adapters there is always a copy, and the weights beside them are the reference.
    let copies = usize::from(apart || setup.lora.is_some())
        + usize::from(setup.reference && (apart || setup.lora.is_none()));
    let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
    // Outputs of each operation, per token: residuals and norms; projections, before and after
    // rotation; attention weights, or two float32 numbers for each head, and outputs; the feed-forward part.
    let weights = shape.heads * if flash(precision == Precision::Bf16, shape.head) { 4 } else { longest };
    let block = 6 * shape.hidden + 3 * q + 4 * kv + weights + 3 * shape.intermediate;
    let blocks = if recompute { block + shape.layers * shape.hidden } else { shape.layers * block };
    let tokens = micro.max(longest);
    // While answers are sampled: keys and values of answers and prompts; a step's buffers, mostly
    // logits; query, key and value as one matrix, and gate and up.
    let caches = (2 * shape.layers * kv).saturating_mul(rows).saturating_mul(longest);
    let workspace = rows * (3 * shape.hidden + 3 * q + 2 * kv + 3 * shape.intermediate + shape.vocabulary);
    let joined = shape.layers * shape.hidden * (q + 2 * kv + 2 * shape.intermediate);
    Memory {
        trained,
        weights: all * (4 + size * copies),
        // Gradients and two moments.
        optimizer: 3 * 4 * trained,
        rollouts: caches.saturating_add(workspace).saturating_add(joined).saturating_mul(size),
        // Gradients in progress take about one block more.
        activations: (size * (blocks + block)).saturating_mul(tokens).saturating_add(LOGITS),
        // On the host, not on the device.
        saving: 0,
        learner: 0,
    }
}

/// Whether kernels compute attention of whole sequences without keeping its weights (`flash.cu`).
pub fn flash(bf16: bool, head: usize) -> bool {
    bf16 && matches!(head, 64 | 128)
}
