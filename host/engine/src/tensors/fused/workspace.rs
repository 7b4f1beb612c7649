//! Buffers of a sampling step, allocated once per sampling: weights in the layout of its
//! kernels, caches, and intermediate results.
//!
//! Shapes: R rows of the batch, a slot each; S tokens of the longest answer; D hidden, F
//! feed-forward, H query heads, K key and value heads, E head, V vocabulary.

use candle_core::Tensor;

use crate::model::{Decoder, ModelError, Shape};
use crate::tensors::decode::Extent;
use crate::tensors::machine::{DeviceBuffer, KernelConfig, Machine};

/// Bytes of a slot's state and of a drawn token in the kernels: `Row` and `Drawn` in `number.cu`.
pub const STATE: usize = 40;
pub const DRAWN: usize = 16;

/// The weights of a block. Query, key and value are one matrix; so are gate and up.
pub struct BlockBuffers {
    pub first_norm: DeviceBuffer,
    pub qkv: DeviceBuffer,
    pub bias: Option<DeviceBuffer>,
    pub q_norm: Option<DeviceBuffer>,
    pub k_norm: Option<DeviceBuffer>,
    pub out: DeviceBuffer,
    pub second_norm: DeviceBuffer,
    pub gate_up: DeviceBuffer,
    pub down: DeviceBuffer,
    /// Keys and values of the answers, `[slots, K, S, E]` each.
    pub keys: DeviceBuffer,
    pub values: DeviceBuffer,
}

/// Buffers of a step.
pub struct Workspace {
    /// The residual stream, the output of half a block, and the input of the next half: `[R, D]` each.
    pub stream: DeviceBuffer,
    pub part: DeviceBuffer,
    pub normed: DeviceBuffer,
    /// Query, key and value, `[R, (H + 2 K) E]`.
    pub qkv: DeviceBuffer,
    /// Rotated queries and outputs of attention, `[R, H E]` each.
    pub queries: DeviceBuffer,
    pub mixed: DeviceBuffer,
    /// Gate and up, `[R, 2 F]`, and their activated product, `[R, F]`.
    pub both: DeviceBuffer,
    pub gated: DeviceBuffer,
    /// Logits, `[R, V]`.
    pub logits: DeviceBuffer,
    /// Partial results of attention, `[R, H, splits, E + 2]`, f32.
    pub parts: DeviceBuffer,
    /// Each row's slot, and the address of its logits.
    pub slots: DeviceBuffer,
    pub sources: DeviceBuffer,
    /// The same for answers whose first token is drawn from their prompt's logits.
    pub fresh_slots: DeviceBuffer,
    pub fresh_sources: DeviceBuffer,
    /// The kernels' state of each slot.
    pub states: DeviceBuffer,
    /// Random numbers, and the tokens drawn with them: `[slots, ring]`.
    pub units: DeviceBuffer,
    pub drawn: DeviceBuffer,
    /// Addresses of keys and values of each slot's prompt, `[slots, layers, 2]`.
    pub prompts: DeviceBuffer,
    pub stops: DeviceBuffer,
}

impl BlockBuffers {
    /// Returns the buffers of a layer, with empty caches.
    pub fn new(
        machine: &dyn Machine,
        kind: KernelConfig,
        decoder: &Decoder<'_>,
        shape: &Shape,
        layer: usize,
        extent: Extent,
    ) -> Result<Self, ModelError> {
        let cache = extent.slots * shape.kv_heads * shape.head * extent.answer.max(1) * kind.size();
        let one = |part: &str| decoder.weight(&format!("model.layers.{layer}.{part}"));
        let lend = |tensor: Tensor| machine.lend(&tensor.contiguous()?);
        let joined = |parts: &[Tensor]| lend(Tensor::cat(parts, 0)?);
        let lent = |weight: Option<Tensor>| weight.map(lend).transpose();
        let [q, k, v] = decoder.projections(layer)?;
        let biases: Vec<Tensor> = [q.bias, k.bias, v.bias].into_iter().flatten().collect();
        Ok(Self {
            first_norm: lend(one("input_layernorm.weight")?)?,
            qkv: joined(&[q.weight, k.weight, v.weight])?,
            bias: (!biases.is_empty()).then(|| joined(&biases)).transpose()?,
            q_norm: lent(q.norm)?,
            k_norm: lent(k.norm)?,
            out: lend(one("self_attn.o_proj.weight")?)?,
            second_norm: lend(one("post_attention_layernorm.weight")?)?,
            gate_up: joined(&[one("mlp.gate_proj.weight")?, one("mlp.up_proj.weight")?])?,
            down: lend(one("mlp.down_proj.weight")?)?,
            keys: machine.buffer(cache)?,
            values: machine.buffer(cache)?,
        })
    }
}

impl Workspace {
    /// Returns buffers for `slots` slots. At most `ring` tokens are drawn between two inspections.
    pub fn new(
        machine: &dyn Machine,
        kind: KernelConfig,
        shape: &Shape,
        stops: &[u32],
        slots: usize,
        ring: usize,
    ) -> Result<Self, ModelError> {
        let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
        let splittable = slots.max(4 * machine.width() / (shape.kv_heads * chunks(&kind)) + 1);
        let numbers = |width: usize| machine.buffer(slots * width * kind.size());
        let workspace = Self {
            stream: numbers(shape.hidden)?,
            part: numbers(shape.hidden)?,
            normed: numbers(shape.hidden)?,
            qkv: numbers(q + 2 * kv)?,
            queries: numbers(q)?,
            mixed: numbers(q)?,
            both: numbers(2 * shape.intermediate)?,
            gated: numbers(shape.intermediate)?,
            logits: numbers(shape.vocabulary)?,
            parts: machine.buffer(4 * splittable * shape.heads * (shape.head + 2))?,
            slots: machine.buffer(4 * slots)?,
            sources: machine.buffer(8 * slots)?,
            fresh_slots: machine.buffer(4 * slots)?,
            fresh_sources: machine.buffer(8 * slots)?,
            states: machine.buffer(STATE * slots)?,
            units: machine.buffer(8 * ring * slots)?,
            drawn: machine.buffer(DRAWN * ring * slots)?,
            prompts: machine.buffer(16 * shape.layers * slots)?,
            stops: machine.buffer(4 * stops.len())?,
        };
        machine.write(&workspace.stops, &bytes(stops.iter().map(|stop| stop.to_le_bytes())))?;
        let row = shape.vocabulary * kind.size();
        let sources = (0..slots).map(|i| (workspace.logits.at + (i * row) as u64).to_le_bytes());
        machine.write(&workspace.sources, &bytes(sources))?;
        Ok(workspace)
    }
}

/// Returns the blocks of `attend` for one key and value head.
pub fn chunks(kind: &KernelConfig) -> usize {
    kind.heads / kind.kv_heads / kind.share()
}

/// Returns numbers as bytes.
pub fn bytes<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.flatten().collect()
}
