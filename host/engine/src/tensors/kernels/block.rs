//! A block forward and backward. Only the tensors that the backward pass needs are kept. The
//! product that computes a weight's gradient adds it in place.
//!
//! Shapes: B sequences, T tokens, D hidden, F feed-forward, H query heads, K key and value heads, E head.

use candle_core::{Result, Tensor};

use super::Kernels;
use super::attention::Attention;
use crate::model::operations::RopeTable;
use crate::model::{Checkpoint, Decoder, ModelResult, Projection, Shape};
use crate::tensors::gradients::Gradients;
use crate::tensors::learning::{Backward, BlockOutput, PassTokens};

/// A projection and its results.
struct Projected {
    by: Projection,
    /// The product, `[B, T, heads E]`, if a norm follows it.
    product: Option<Tensor>,
    /// The output, `[B, heads, T, E]`.
    made: Tensor,
}

/// A block's weights and intermediate results.
struct KernelBlock<'a> {
    kernels: &'a Kernels,
    checkpoint: &'a Checkpoint,
    layer: usize,
    rope: RopeTable,
    norms: [Tensor; 2],
    /// Matrices: `[D, H E]`, `[F, D]` twice, and `[D, F]`.
    out: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    projected: [Projected; 3],
    /// The stream before each half, and the normed stream: `[B, T, D]` each.
    streams: [Tensor; 2],
    normed: [Tensor; 2],
    /// Attention: what its backward pass needs.
    attention: Attention,
    /// Outputs of the heads, side by side, `[B, T, H E]`.
    mixed: Tensor,
    /// Gate, up and their activated product, `[B, T, F]` each.
    gates: Tensor,
    ups: Tensor,
    gated: Tensor,
}

impl Kernels {
    /// Runs a block on the stream `[B, T, D]`.
    pub(super) fn pass<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        layer: usize,
        x_btd: &Tensor,
        way: &PassTokens,
        keep: bool,
    ) -> ModelResult<BlockOutput<'a>> {
        let (decoder, shape) = (Decoder::frozen(checkpoint), &checkpoint.shape);
        let weight = |part: &str| decoder.weight(&format!("model.layers.{layer}.{part}"));
        let x_btd = x_btd.contiguous()?;
        let first = weight("input_layernorm.weight")?;
        let [x_btd, normed] = self.norm(&x_btd, None, (&first, shape.epsilon))?;

        let project = |by: Projection| -> Result<Projected> {
            let product = self.product(&normed, &by.weight)?;
            let made = self.spread(&product, by.turn(&way.rope.usual), None)?;
            let product = by.norm.is_some().then_some(product);
            Ok(Projected { by, product, made })
        };
        let [q, k, v] = decoder.projections(layer)?;
        let projected = [project(q)?, project(k)?, project(v)?];
        let [q, k, v] = projected.each_ref().map(|projected| &projected.made);
        let (attention, mixed) = self.attend(q, k, v)?;
        let out = weight("self_attn.o_proj.weight")?;
        let part = self.product(&mixed, &out)?;

        let second = weight("post_attention_layernorm.weight")?;
        let [middle, normed_again] = self.norm(&x_btd, Some(&part), (&second, shape.epsilon))?;
        drop(part);
        let [gate, up, down] = ["gate", "up", "down"].map(|part| weight(&format!("mlp.{part}_proj.weight")));
        let (gate, up, down) = (gate?, up?, down?);
        let (gates, ups) = (self.product(&normed_again, &gate)?, self.product(&normed_again, &up)?);
        let gated = self.gated(&gates, &ups)?;
        let stream = self.add(&middle, &self.product(&gated, &down)?)?;

        let cache = (k.clone(), v.clone());
        let block = || KernelBlock {
            kernels: self,
            checkpoint,
            layer,
            rope: way.rope.usual.clone(),
            norms: [first, second],
            out,
            gate,
            up,
            down,
            projected,
            streams: [x_btd, middle],
            normed: [normed, normed_again],
            attention,
            mixed,
            gates,
            ups,
            gated,
        };
        let back = keep.then(|| Box::new(block()) as Box<dyn Backward + 'a>);
        Ok(BlockOutput { stream, cache, back })
    }
}

impl Backward for KernelBlock<'_> {
    fn back(self: Box<Self>, slope: &Tensor, gradients: &mut Gradients) -> ModelResult<Tensor> {
        let place = LayerGradients { kernels: self.kernels, layer: self.layer };
        let Self { kernels, projected, .. } = *self;
        let (shape, epsilon) = (&self.checkpoint.shape, self.checkpoint.shape.epsilon);
        let slope = slope.contiguous()?;

        place.weigh(gradients, "mlp.down_proj.weight", &slope, &self.gated)?;
        drop(self.gated);
        let dgated = kernels.unproduct(&slope, &self.down, None)?;
        let [dgates, dups] = kernels.gated_back(&self.gates, &self.ups, &dgated)?;
        drop((dgated, self.gates, self.ups));
        let [normed, normed_again] = self.normed;
        place.weigh(gradients, "mlp.gate_proj.weight", &dgates, &normed_again)?;
        place.weigh(gradients, "mlp.up_proj.weight", &dups, &normed_again)?;
        let dnormed = kernels.unproduct(&dgates, &self.gate, None)?;
        let dnormed = kernels.unproduct(&dups, &self.up, Some(dnormed))?;
        drop((dgates, dups, normed_again));
        let ([first, second], [before, middle]) = (self.norms, self.streams);
        let [slope, dsecond] = kernels.norm_back(&middle, (&second, epsilon), &dnormed, Some(&slope))?;
        gradients.add(&place.name("post_attention_layernorm.weight"), &dsecond)?;
        drop((dnormed, middle));

        place.weigh(gradients, "self_attn.o_proj.weight", &slope, &self.mixed)?;
        let dmixed = kernels.unproduct(&slope, &self.out, None)?;
        let [q, k, v] = projected.each_ref().map(|projected| &projected.made);
        let dheads = kernels.attend_back([q, k, v], (&self.attention, &self.mixed), &dmixed)?;
        drop((dmixed, self.attention, self.mixed));

        let mut dnormed = None;
        for ((part, projected), dmade) in ["q", "k", "v"].iter().zip(&projected).zip(dheads) {
            let rope = projected.by.turned.then_some(&self.rope);
            let dproduct = kernels.gather(&dmade, rope, None)?;
            let dproduct = place.project_back(gradients, part, projected, dproduct, shape)?;
            place.weigh(gradients, &format!("self_attn.{part}_proj.weight"), &dproduct, &normed)?;
            dnormed = Some(kernels.unproduct(&dproduct, &projected.by.weight, dnormed)?);
        }
        let Some(dnormed) = dnormed else { return Ok(slope) };
        let [slope, dfirst] = kernels.norm_back(&before, (&first, epsilon), &dnormed, Some(&slope))?;
        gradients.add(&place.name("input_layernorm.weight"), &dfirst)?;
        Ok(slope)
    }
}

/// A layer, for the gradients of its weights.
struct LayerGradients<'a> {
    kernels: &'a Kernels,
    layer: usize,
}

impl LayerGradients<'_> {
    fn name(&self, part: &str) -> String {
        format!("model.layers.{}.{part}", self.layer)
    }

    /// Adds to the gradient of a matrix or its adapter, from that of its product with `x`.
    fn weigh(&self, gradients: &mut Gradients, part: &str, slope: &Tensor, x: &Tensor) -> Result<()> {
        let (kernels, name) = (self.kernels, self.name(part));
        match gradients.adapter(&name) {
            Some(adapter) => kernels.adapted(gradients, &adapter, slope, x),
            None if gradients.wants(&name) => gradients.renew(&name, |sum| kernels.weighed(slope, x, sum)),
            None => Ok(()),
        }
    }

    /// Returns the gradient of a projection's product from that of its heads: through its norm and
    /// bias, if it has them.
    fn project_back(
        &self,
        gradients: &mut Gradients,
        part: &str,
        Projected { by, product, .. }: &Projected,
        mut dproduct: Tensor,
        shape: &Shape,
    ) -> Result<Tensor> {
        if let (Some(product), Some(norm)) = (product, &by.norm) {
            let [dbefore, dnorm] = self.kernels.norm_back(product, (norm, shape.epsilon), &dproduct, None)?;
            gradients.add(&self.name(&format!("self_attn.{part}_norm.weight")), &dnorm)?;
            dproduct = dbefore;
        }
        if by.bias.is_some() {
            let dbias = self.kernels.columns(&dproduct, by.heads * shape.head)?;
            gradients.add(&self.name(&format!("self_attn.{part}_proj.bias")), &dbias)?;
        }
        Ok(dproduct)
    }
}
