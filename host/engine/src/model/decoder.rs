//! The decoder, in candle's own differentiable operations: the reference that every faster path is
//! held against, and what [`crate::tensors`] is made of.
//!
//! It computes in the kind of number that its matrices are in. Norms, rotations, softmax and logits are
//! in float32 all the same.
//!
//! Shapes: B sequences, T tokens, S tokens looked at, D hidden, H query heads, K key and value heads,
//! E head, V vocabulary.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{silu, softmax};

use super::{Checkpoint, Family, ModelError};

/// A padded batch of token sequences.
#[derive(Clone, Debug)]
pub struct Input {
    /// Tokens, `[B, T]`, u32.
    pub tokens: Tensor,
    /// Position of each token in its own sequence, `[B, T]`, u32.
    pub positions: Tensor,
    /// 1 for a token, 0 for padding, `[B, T]`, f32.
    pub mask: Tensor,
}

/// What a forward pass gives.
#[derive(Clone, Debug)]
pub struct Output {
    /// The embeddings, then the residual stream after each block but the last, then the last one
    /// after the final norm: `[B, T, D]` each.
    pub hidden: Vec<Tensor>,
    /// `[B, T, V]`, f32.
    pub logits: Tensor,
}

/// A decoder over a checkpoint's weights: what it computes can be differentiated by each of them.
pub struct Decoder<'a> {
    checkpoint: &'a Checkpoint,
    frozen: bool,
}

/// Cosines and sines of each token's rotations, `[B, 1, T, E/2]` each.
pub(crate) type Rotations = (Tensor, Tensor);

impl Input {
    /// Sequences as they are, all of one length.
    pub fn of(rows: &[Vec<u32>], device: &Device) -> Result<Self> {
        let (b, t) = (rows.len(), rows.first().map_or(0, Vec::len));
        let positions: Vec<u32> = (0..b).flat_map(|_| 0..t as u32).collect();
        Ok(Self {
            tokens: Tensor::new(rows.to_vec(), device)?,
            positions: Tensor::from_vec(positions, (b, t), device)?,
            mask: Tensor::ones((b, t), DType::F32, device)?,
        })
    }
}

impl<'a> Decoder<'a> {
    /// A decoder over these weights.
    pub fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, frozen: false }
    }

    /// One whose results can't be differentiated by the weights: nothing of how they were made is kept.
    pub(crate) fn frozen(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, frozen: true }
    }

    /// One forward pass over whole sequences.
    pub fn forward(&self, input: &Input) -> std::result::Result<Output, ModelError> {
        let shape = &self.checkpoint.shape;
        let largest = input.tokens.flatten_all()?.max(0)?.to_scalar::<u32>()?;
        if largest as usize >= shape.vocabulary {
            return Err(ModelError::Token { token: largest, vocabulary: shape.vocabulary });
        }
        let mut x_btd = self.embed(&input.tokens)?;
        let rope = self.rope(&input.positions)?;
        let bias = attention_bias(&input.mask)?;

        let mut hidden = vec![x_btd.clone()];
        for layer in 0..shape.layers {
            x_btd = self.block(layer, &x_btd, &rope, |q, k, v| attend(q, k, v, &bias))?;
            if layer + 1 < shape.layers {
                hidden.push(x_btd.clone());
            }
        }
        let last = self.finish(&x_btd)?;
        hidden.push(last.clone());
        let logits = linear(&last, &self.head()?)?.to_dtype(DType::F32)?;
        Ok(Output { hidden, logits })
    }

    /// Embeddings of tokens `[B, T]`: `[B, T, D]`.
    pub(crate) fn embed(&self, tokens: &Tensor) -> std::result::Result<Tensor, ModelError> {
        let (b, t) = tokens.dims2()?;
        let embedding = self.weight("model.embed_tokens.weight")?;
        let hidden = self.checkpoint.shape.hidden;
        Ok(embedding.index_select(&tokens.flatten_all()?, 0)?.reshape((b, t, hidden))?)
    }

    /// The final norm.
    pub(crate) fn finish(&self, x_btd: &Tensor) -> std::result::Result<Tensor, ModelError> {
        self.norm(x_btd, "model.norm.weight")
    }

    /// The head's matrix, `[V, D]`.
    pub(crate) fn head(&self) -> std::result::Result<Tensor, ModelError> {
        self.weight(self.checkpoint.shape.head_name())
    }

    /// One block. `look` is given queries `[B, H, T, E]`, and keys and values `[B, K, T, E]`, queries and
    /// keys rotated; it answers with what each query head makes of the values that it looks at,
    /// `[B, H, T, E]`: see [`attend`].
    pub(crate) fn block(
        &self,
        layer: usize,
        x_btd: &Tensor,
        rope: &Rotations,
        look: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> std::result::Result<Tensor, ModelError> {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let normed = self.norm(x_btd, &name("input_layernorm.weight"))?;
        let x_btd = (x_btd + self.attention(layer, &normed, rope, look)?)?;
        let normed = self.norm(&x_btd, &name("post_attention_layernorm.weight"))?;
        let gate = linear(&normed, &self.weight(&name("mlp.gate_proj.weight"))?)?;
        let up = linear(&normed, &self.weight(&name("mlp.up_proj.weight"))?)?;
        let down = linear(&(silu(&gate)? * up)?, &self.weight(&name("mlp.down_proj.weight"))?)?;
        Ok((x_btd + down)?)
    }

    fn attention(
        &self,
        layer: usize,
        x_btd: &Tensor,
        rope: &Rotations,
        look: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> std::result::Result<Tensor, ModelError> {
        let shape = &self.checkpoint.shape;
        let (b, t, _) = x_btd.dims3()?;
        let project = |part: &str, heads: usize| -> std::result::Result<Tensor, ModelError> {
            let name = format!("model.layers.{layer}.self_attn.{part}_proj");
            let mut y = linear(x_btd, &self.weight(&format!("{name}.weight"))?)?;
            if shape.bias {
                // Its gradient is a sum over all tokens, which is made in the bias's own kind of number.
                let bias = self.weight(&format!("{name}.bias"))?;
                y = y.to_dtype(bias.dtype())?.broadcast_add(&bias)?.to_dtype(y.dtype())?;
            }
            Ok(y.reshape((b, t, heads, shape.head))?)
        };
        let (mut q, mut k) = (project("q", shape.heads)?, project("k", shape.kv_heads)?);
        let v = project("v", shape.kv_heads)?;
        if shape.family == Family::Qwen3 {
            q = self.norm(&q, &format!("model.layers.{layer}.self_attn.q_norm.weight"))?;
            k = self.norm(&k, &format!("model.layers.{layer}.self_attn.k_norm.weight"))?;
        }
        let q_bhte = rotate(&q.transpose(1, 2)?.contiguous()?, rope)?;
        let k_bkte = rotate(&k.transpose(1, 2)?.contiguous()?, rope)?;
        let v_bkte = v.transpose(1, 2)?.contiguous()?;

        let mixed = look(&q_bhte, &k_bkte, &v_bkte)?;
        let mixed = mixed.transpose(1, 2)?.reshape((b, t, shape.heads * shape.head))?;
        Ok(linear(&mixed, &self.weight(&format!("model.layers.{layer}.self_attn.o_proj.weight"))?)?)
    }

    /// Root-mean-square norm over the last dimension.
    fn norm(&self, x: &Tensor, weight: &str) -> std::result::Result<Tensor, ModelError> {
        let (weight, kind) = (self.weight(weight)?, x.dtype());
        let x = x.to_dtype(weight.dtype())?;
        let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + self.checkpoint.shape.epsilon)?.sqrt()?;
        Ok(x.broadcast_div(&scale)?.broadcast_mul(&weight)?.to_dtype(kind)?)
    }

    /// Rotations for positions `[B, T]`.
    pub(crate) fn rope(&self, positions: &Tensor) -> std::result::Result<Rotations, ModelError> {
        let frequencies = self.checkpoint.shape.rope.frequencies(self.checkpoint.shape.head);
        let half = frequencies.len();
        let frequencies = Tensor::from_vec(frequencies, (1, 1, half), positions.device())?;
        let angles =
            positions.to_dtype(DType::F32)?.unsqueeze(2)?.broadcast_mul(&frequencies)?.unsqueeze(1)?;
        Ok((angles.cos()?, angles.sin()?))
    }

    /// A weight by its name.
    pub(crate) fn weight(&self, name: &str) -> std::result::Result<Tensor, ModelError> {
        let var = self.checkpoint.weights.get(name).ok_or_else(|| ModelError::Missing(name.to_owned()))?;
        Ok(if self.frozen { var.as_detached_tensor() } else { var.as_tensor().clone() })
    }
}

/// `x · wᵀ` over the last dimension.
fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let mut dims = x.dims().to_vec();
    let width = dims.pop().unwrap_or(0);
    let rows: usize = dims.iter().product();
    let y = x.reshape((rows, width))?.matmul(&weight.t()?)?;
    dims.push(weight.dim(0)?);
    y.reshape(dims)
}

/// Rotary embedding in the layout of Hugging Face checkpoints: a head's first half is paired with
/// its second.
fn rotate(x_bhte: &Tensor, (cos, sin): &Rotations) -> Result<Tensor> {
    let kind = x_bhte.dtype();
    let x_bhte = x_bhte.to_dtype(DType::F32)?;
    let half = x_bhte.dim(D::Minus1)? / 2;
    let (a, b) = (x_bhte.narrow(D::Minus1, 0, half)?, x_bhte.narrow(D::Minus1, half, half)?);
    let first = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
    let second = (b.broadcast_mul(cos)? + a.broadcast_mul(sin)?)?;
    Tensor::cat(&[first, second], D::Minus1)?.to_dtype(kind)
}

/// Attention: what each query head makes of the values that it looks at, `[B, H, T, E]`, from queries
/// `[B, H, T, E]`, keys and values `[B, K, S, E]`, and what is added to the scores, `[1 or B, 1, 1 or T, S]`.
///
/// The query heads that share a key head are taken as more rows of its queries, so that keys and values
/// are never repeated.
pub(crate) fn attend(q_bhte: &Tensor, k_bkse: &Tensor, v_bkse: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (b, h, t, e) = q_bhte.dims4()?;
    let (_, k, s, _) = k_bkse.dims4()?;
    let rows = h / k * t;
    let scores = q_bhte.reshape((b, k, rows, e))?.matmul(&k_bkse.transpose(2, 3)?)?;
    let scores = (scores.reshape((b, h, t, s))?.to_dtype(DType::F32)? / (e as f64).sqrt())?;
    let weights = softmax(&scores.broadcast_add(bias)?, D::Minus1)?.to_dtype(v_bkse.dtype())?;
    weights.reshape((b, k, rows, s))?.matmul(v_bkse)?.reshape((b, h, t, e))
}

/// What is added to attention scores, `[B, 1, T, T]`: 0 where a token may look, far below where it
/// may not, that is ahead of itself and at padding.
fn attention_bias(mask: &Tensor) -> Result<Tensor> {
    let (_, t) = mask.dims2()?;
    let causal: Vec<f32> =
        (0..t).flat_map(|i| (0..t).map(move |j| if j <= i { 0.0 } else { -1e9 })).collect();
    let causal = Tensor::from_vec(causal, (1, 1, t, t), mask.device())?;
    let padding = ((mask - 1.0)? * 1e9)?.unsqueeze(1)?.unsqueeze(1)?;
    causal.broadcast_add(&padding)
}
