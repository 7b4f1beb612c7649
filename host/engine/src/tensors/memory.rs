//! How much memory a run takes on a device, told before it starts.

use super::head::AT_ONCE;
use crate::cpu::{Arena, Memory};
use crate::model::{Precision, Shape};

/// For a model of this shape; prompts and answers have at most `longest` tokens and are sampled `rows` at
/// a time, micro-batches have at most `micro` tokens or one sequence. Activations are reckoned, not
/// counted: candle keeps what nearly every operation gave.
pub fn memory(
    shape: &Shape,
    precision: Precision,
    reference: bool,
    rows: usize,
    longest: usize,
    micro: usize,
    recompute: bool,
) -> Memory {
    let (trained, size) = (Arena::new(shape).len, precision.dtype().size_in_bytes());
    let copies = usize::from(precision != Precision::F32) + usize::from(reference);
    let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
    // For each token: norms and residuals; projections, turned and rotated; scores and what softmax makes
    // of them; the feed-forward part. Most of it is float32 at some point.
    let block =
        13 * shape.hidden + 8 * (q + kv) + 2 * kv + 8 * shape.heads * longest + 4 * shape.intermediate;
    let blocks = if recompute { block + shape.layers * shape.hidden } else { shape.layers * block };
    // While answers are sampled: their keys and values and their prompts'; what a step works with, logits
    // above all; query, key and value as one matrix, and gate and up.
    let caches = 2 * shape.layers * kv * rows * longest;
    let desk = rows * (3 * shape.hidden + 3 * q + 2 * kv + 3 * shape.intermediate + shape.vocabulary);
    let joined = shape.layers * shape.hidden * (q + 2 * kv + 2 * shape.intermediate);
    Memory {
        trained,
        weights: trained * (4 + size * copies),
        // Gradients and two moments.
        optimizer: 3 * 4 * trained,
        rollouts: size * (caches + desk + joined),
        activations: 4 * (micro.max(longest) * blocks + 4 * AT_ONCE),
        // On the host, not on the device.
        saving: 0,
    }
}
