//! The decoder in candle's own differentiable operations: the reference that faster paths are
//! tested against.
//!
//! It computes in the number format of its matrices. Norms, rope, softmax and logits are always float32.
//!
//! Shapes: B sequences, T tokens, D hidden, H query heads, K key and value heads, E head, V vocabulary.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::ops::softmax;

use super::operations::{
    First, RopeTable, Scores, Sides, Turn, ahead, attend, capped, chosen, gated, linear, norm, project,
    rounded, side_by_side,
};
use super::{Checkpoint, Experts, ModelError, ModelResult, Rope};

/// The result of a forward pass.
#[derive(Clone, Debug)]
pub struct Output {
    /// The embeddings, the residual stream after each block except the last, then the last block's
    /// stream after the final norm: `[B, T, D]` each.
    pub hidden: Vec<Tensor>,
    /// Logits, `[B, T, V]`, f32.
    pub logits: Tensor,
}

/// A decoder over a checkpoint's weights. Its results are differentiable by each weight.
pub struct Decoder<'a> {
    checkpoint: &'a Checkpoint,
    frozen: bool,
    sides: Sides,
}

/// A query, key or value projection.
pub(crate) struct Projection {
    /// Number of heads.
    pub heads: usize,
    /// Its matrix, `[heads E, D]`.
    pub weight: Tensor,
    /// Its bias, `[heads E]`, f32, if the model has one.
    pub bias: Option<Tensor>,
    /// Weights of the norm, f32: `[E]` for each head, `[heads E]` for all together. `None` without a norm.
    pub norm: Option<Tensor>,
    /// That norm's epsilon.
    epsilon: f64,
    /// Whether it is rotated: true for queries and keys, except in layers without a rotary embedding.
    pub turned: bool,
}

/// Cosines and sines of the layers' rotary embeddings.
#[derive(Clone)]
pub(crate) struct RopeTables {
    /// For most layers.
    pub usual: RopeTable,
    /// For layers with a sliding window, if theirs is different.
    local: Option<RopeTable>,
}

impl Projection {
    /// Returns the steps that turn the product into heads.
    pub fn turn<'a>(&'a self, rope: &'a RopeTable) -> Turn<'a> {
        let first = match (&self.bias, &self.norm) {
            (Some(bias), _) => First::Bias(bias),
            (None, Some(weight)) => First::Norm(weight, self.epsilon),
            (None, None) => First::Nothing,
        };
        Turn { heads: self.heads, first, rope: self.turned.then_some(rope) }
    }
}

impl<'a> Decoder<'a> {
    /// Returns a decoder over these weights.
    pub fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, frozen: false, sides: Sides::Plain }
    }

    /// Returns a decoder over float32 weights that rounds embeddings and both sides of products to
    /// bf16, and nothing else. This matches the CPU core in bf16.
    pub fn rounding(checkpoint: &'a Checkpoint) -> Self {
        Self { sides: Sides::Rounded, ..Self::new(checkpoint) }
    }

    /// Returns a decoder whose results cannot be differentiated by the weights; no graph is kept.
    pub(crate) fn frozen(checkpoint: &'a Checkpoint) -> Self {
        Self { frozen: true, ..Self::new(checkpoint) }
    }

    /// Runs one forward pass over whole sequences of equal length: tokens `[B, T]`, u32.
    pub fn forward(&self, tokens: &Tensor) -> ModelResult<Output> {
        let shape = &self.checkpoint.shape;
        let largest = tokens.flatten_all()?.max(0)?.to_scalar::<u32>()?;
        if largest as usize >= shape.vocabulary {
            return Err(ModelError::Token { token: largest, vocabulary: shape.vocabulary });
        }
        let (_, t) = tokens.dims2()?;
        let mut x_btd = self.embed(tokens)?;
        let rope = self.rope(&Tensor::arange(0, t as u32, tokens.device())?.unsqueeze(0)?)?;
        let sides = if shape.rounds_attention() { self.sides } else { Sides::Plain };
        let scores = Scores { sides, ..Scores::of(shape) };
        let all = ahead(t, None, tokens.device())?;
        let near = ahead(t, shape.variant.window, tokens.device())?;

        let mut hidden = vec![x_btd.clone()];
        for layer in 0..shape.layers {
            let bias = if shape.window(layer).is_some() { &near } else { &all };
            let look = |q: &Tensor, k: &Tensor, v: &Tensor| side_by_side(&attend(q, k, v, bias, scores)?);
            x_btd = self.block(layer, &x_btd, &rope, look)?;
            if layer + 1 < shape.layers {
                hidden.push(x_btd.clone());
            }
        }
        let last = self.finish(&x_btd)?;
        hidden.push(last.clone());
        let logits = self.logits(linear(&last, &self.head()?, self.sides)?)?.to_dtype(DType::F32)?;
        Ok(Output { hidden, logits })
    }

    /// Returns the embeddings of tokens `[B, T]`: `[B, T, D]`.
    pub(crate) fn embed(&self, tokens: &Tensor) -> ModelResult<Tensor> {
        let (b, t) = tokens.dims2()?;
        let embedding = self.weight("model.embed_tokens.weight")?;
        let hidden = self.checkpoint.shape.hidden;
        let x_btd = embedding.index_select(&tokens.flatten_all()?, 0)?.reshape((b, t, hidden))?;
        let x_btd = if self.sides == Sides::Rounded { rounded(&x_btd)? } else { x_btd };
        Ok(times(x_btd, self.checkpoint.shape.variant.embedding)?)
    }

    /// Applies the final norm.
    pub(crate) fn finish(&self, x_btd: &Tensor) -> ModelResult<Tensor> {
        self.norm(x_btd, "model.norm.weight")
    }

    /// Returns the head's matrix, `[V, D]`.
    pub(crate) fn head(&self) -> ModelResult<Tensor> {
        self.weight(self.checkpoint.shape.head_name())
    }

    /// Returns the logits from a product with the head: scaled and capped if the model does that.
    pub(crate) fn logits(&self, product: Tensor) -> Result<Tensor> {
        let variant = &self.checkpoint.shape.variant;
        let logits = if variant.logits == 1.0 { product } else { (product / variant.logits)? };
        variant.logit_cap.map_or(Ok(logits.clone()), |cap| capped(&logits, cap))
    }

    /// Runs one block. `look` computes attention: it receives rotated queries `[B, H, T, E]`, rotated keys
    /// and values `[B, K, T, E]`, and returns the outputs of all query heads side by side, `[B, T, H E]`.
    pub(crate) fn block(
        &self,
        layer: usize,
        x_btd: &Tensor,
        rope: &RopeTables,
        look: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> ModelResult<Tensor> {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let shape = &self.checkpoint.shape;
        let normed = |x: &Tensor, norm: Option<&str>| match norm {
            Some(norm) => self.norm(x, &name(&format!("{norm}.weight"))),
            None => Ok(x.clone()),
        };
        // Adds the output of half a block to the stream.
        let join = |x_btd: &Tensor, half: Tensor, norm: Option<&str>| {
            Ok::<_, ModelError>((x_btd + times(normed(&half, norm)?, shape.variant.residual)?)?)
        };
        let [attention, feed_forward] = shape.family.norms;
        let half = self.attention(layer, &normed(x_btd, attention.before)?, rope, look)?;
        let x_btd = join(x_btd, half, attention.after)?;
        let x = normed(&x_btd, feed_forward.before)?;
        if let Some(experts) = shape.variant.experts {
            return join(&x_btd, self.mixture(layer, &x, experts)?, feed_forward.after);
        }
        let [gate, up] = if shape.family.fused {
            let both = self.weight(&name("mlp.gate_up_proj.weight"))?;
            [0, shape.intermediate].map(|from| both.narrow(0, from, shape.intermediate))
        } else {
            [Ok(self.weight(&name("mlp.gate_proj.weight"))?), Ok(self.weight(&name("mlp.up_proj.weight"))?)]
        };
        let gated = gated(&x, [&gate?, &up?], self.sides, shape.family.activation)?;
        let half = self.linear(&gated, &name("mlp.down_proj.weight"))?;
        join(&x_btd, half, feed_forward.after)
    }

    /// A mixture of experts. Here each token goes through all experts; outputs of experts that the
    /// router did not choose get weight 0.
    fn mixture(&self, layer: usize, x_btd: &Tensor, experts: Experts) -> ModelResult<Tensor> {
        let name = |part: &str| format!("model.layers.{layer}.mlp.{part}.weight");
        let routes = softmax(
            &linear(x_btd, &self.weight(&name("gate"))?, Sides::Plain)?.to_dtype(DType::F32)?,
            D::Minus1,
        )?;
        let mut weights = (&routes * chosen(&routes, experts.active)?)?;
        if experts.normalized {
            weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        }
        let weights = weights.to_dtype(x_btd.dtype())?;
        let mut mixed = x_btd.zeros_like()?;
        for expert in 0..experts.count {
            let matrix = |part: &str| self.weight(&name(&format!("experts.{expert}.{part}_proj")));
            let inside = gated(
                x_btd,
                [&matrix("gate")?, &matrix("up")?],
                self.sides,
                self.checkpoint.shape.family.activation,
            )?;
            let made = linear(&inside, &matrix("down")?, self.sides)?;
            mixed = (mixed + made.broadcast_mul(&weights.narrow(D::Minus1, expert, 1)?)?)?;
        }
        Ok(mixed)
    }

    fn attention(
        &self,
        layer: usize,
        x_btd: &Tensor,
        rope: &RopeTables,
        look: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> ModelResult<Tensor> {
        let [q, k, v] = self.projections(layer)?;
        let is_local = self.checkpoint.shape.variant.sliding.get(layer).copied().unwrap_or(false);
        let table = rope.local.as_ref().filter(|_| is_local).unwrap_or(&rope.usual);
        let made = |p: &Projection| project(x_btd, &p.weight, self.sides, p.turn(table));
        let mixed = look(&made(&q)?, &made(&k)?, &made(&v)?)?;
        self.linear(&mixed, &format!("model.layers.{layer}.self_attn.o_proj.weight"))
    }

    /// Returns the query, key and value projections of a block.
    pub(crate) fn projections(&self, layer: usize) -> ModelResult<[Projection; 3]> {
        let shape = &self.checkpoint.shape;
        let mut first = 0;
        let mut one = |part: &str, heads: usize| {
            let name = |rest: &str| format!("model.layers.{layer}.self_attn.{part}_{rest}");
            let looked_up = part != "v";
            let weight = if shape.family.fused {
                let all = self.weight(&format!("model.layers.{layer}.self_attn.qkv_proj.weight"))?;
                all.narrow(0, first * shape.head, heads * shape.head)?
            } else {
                self.weight(&name("proj.weight"))?
            };
            first += heads;
            let normed = looked_up && shape.head_norms().is_some();
            Ok::<_, ModelError>(Projection {
                heads,
                weight,
                bias: shape.family.bias.then(|| self.weight(&name("proj.bias"))).transpose()?,
                norm: normed.then(|| self.gain(&name("norm.weight"))).transpose()?,
                epsilon: shape.epsilon,
                turned: looked_up && shape.rope(layer).is_some(),
            })
        };
        Ok([one("q", shape.heads)?, one("k", shape.kv_heads)?, one("v", shape.kv_heads)?])
    }

    /// Root-mean-square norm over the last dimension.
    fn norm(&self, x: &Tensor, weight: &str) -> ModelResult<Tensor> {
        Ok(norm(x, &self.gain(weight)?, self.checkpoint.shape.epsilon)?)
    }

    /// Returns the factors of a norm.
    fn gain(&self, name: &str) -> ModelResult<Tensor> {
        let weight = self.weight(name)?;
        Ok(if self.checkpoint.shape.family.shifted { (weight + 1.0)? } else { weight })
    }

    /// `x · wᵀ` over the last dimension.
    fn linear(&self, x: &Tensor, weight: &str) -> ModelResult<Tensor> {
        Ok(linear(x, &self.weight(weight)?, self.sides)?)
    }

    /// Returns rotary tables for positions `[B, T]`.
    pub(crate) fn rope(&self, positions: &Tensor) -> ModelResult<RopeTables> {
        let shape = &self.checkpoint.shape;
        let table = |rope: &Rope| -> Result<RopeTable> {
            let frequencies = rope.frequencies(shape.head);
            let half = frequencies.len();
            let frequencies = Tensor::from_vec(frequencies, (1, 1, half), positions.device())?;
            let angles =
                positions.to_dtype(DType::F32)?.unsqueeze(2)?.broadcast_mul(&frequencies)?.unsqueeze(1)?;
            let factor = f64::from(rope.factor());
            Ok((times(angles.cos()?, factor)?, times(angles.sin()?, factor)?))
        };
        let local = shape.variant.local.as_ref().map(table).transpose()?;
        Ok(RopeTables { usual: table(&shape.rope)?, local })
    }

    /// Returns a weight by its name.
    pub(crate) fn weight(&self, name: &str) -> ModelResult<Tensor> {
        let var = self.checkpoint.weights.get(name).ok_or_else(|| ModelError::Missing(name.to_owned()))?;
        Ok(if self.frozen { var.as_detached_tensor() } else { var.as_tensor().clone() })
    }
}

/// Returns `x · scale`.
fn times(x: Tensor, scale: f64) -> Result<Tensor> {
    if scale == 1.0 { Ok(x) } else { x * scale }
}

/// Returns the log-probability of each token after the first, given the tokens before it:
/// `[B, T - 1]`, from logits `[B, T, V]` and tokens `[B, T]`.
pub fn token_log_probs(logits: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let (_, t, _) = logits.dims3()?;
    let ahead = logits.narrow(1, 0, t - 1)?;
    let next = tokens.narrow(1, 1, t - 1)?.contiguous()?.unsqueeze(2)?;
    let chosen = ahead.gather(&next, D::Minus1)?.squeeze(2)?;
    chosen - ahead.log_sum_exp(D::Minus1)?
}
