//! The operations of a block in candle's differentiable operations. Faster ones are tested against them.
//!
//! Norms, rope and softmax compute in float32 and return the number format of their input.
//!
//! Shapes: B sequences, T query tokens, S key tokens, N heads, H query heads, K key and value
//! heads, E width of a head.

use candle_core::{CpuStorage, CustomOp1, D, DType, Device, Layout, Result, Shape as Dims, Tensor, bail};
use candle_nn::ops::{silu, softmax};

use super::{Activation, Shape};

/// Cosines and sines of each token's rope, `[B or 1, 1, T, E/2]` each, f32.
pub(crate) type RopeTable = (Tensor, Tensor);

/// The steps from a projection's product to attention.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// Number of heads.
    pub heads: usize,
    /// The step before rope.
    pub first: First<'a>,
    /// The table to rotate by; `None` for values and in layers without a rotary embedding.
    pub rope: Option<&'a RopeTable>,
}

/// The step before rope.
#[derive(Clone, Copy)]
pub(crate) enum First<'a> {
    /// Nothing.
    Nothing,
    /// A bias, `[N E]`, f32.
    Bias(&'a Tensor),
    /// A norm per head or over all heads: its weights, `[E]` or `[N E]`, f32, and its epsilon.
    Norm(&'a Tensor, f64),
}

/// The number format of a product's two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// Unchanged.
    Plain,
    /// In float32, rounded to bf16 first: forward and backward.
    Rounded,
}

/// `x · wᵀ` over the last dimension.
pub(crate) fn linear(x: &Tensor, weight: &Tensor, sides: Sides) -> Result<Tensor> {
    let mut dims = x.dims().to_vec();
    let width = dims.pop().unwrap_or(0);
    let rows: usize = dims.iter().product();
    let x = x.reshape((rows, width))?;
    let y = product(&x, &weight.t()?, sides)?;
    dims.push(weight.dim(0)?);
    y.reshape(dims)
}

fn product(a: &Tensor, b: &Tensor, sides: Sides) -> Result<Tensor> {
    match sides {
        Sides::Plain => a.matmul(b),
        Sides::Rounded => rounded(a)?.matmul(&rounded(b)?)?.apply_op1(RoundedGradient),
    }
}

/// Rounds to bf16 and returns float32. The gradient passes through unchanged.
pub(crate) fn rounded(x: &Tensor) -> Result<Tensor> {
    // The added difference is exact, and so is the sum.
    x + (x.to_dtype(DType::BF16)?.to_dtype(DType::F32)? - x)?.detach()
}

/// The identity, which rounds the gradient to bf16.
struct RoundedGradient;

impl CustomOp1 for RoundedGradient {
    fn name(&self) -> &'static str {
        "rounded-gradient"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Dims)> {
        let (CpuStorage::F32(numbers), Some((from, to))) = (storage, layout.contiguous_offsets()) else {
            bail!("a gradient is rounded of float32 that lies in one piece");
        };
        Ok((CpuStorage::F32(numbers[from..to].to_vec()), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(rounded(gradient)?))
    }
}

/// Root-mean-square norm over the last dimension.
pub(crate) fn norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    let kind = x.dtype();
    let x = x.to_dtype(weight.dtype())?;
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
    x.broadcast_div(&scale)?.broadcast_mul(weight)?.to_dtype(kind)
}

/// Computes a projection for attention: the product with a matrix, `[B, T, N E]`, split into
/// heads, `[B, N, T, E]`, then normed and rotated.
pub(crate) fn project(x: &Tensor, weight: &Tensor, sides: Sides, turn: Turn<'_>) -> Result<Tensor> {
    let x = linear(x, weight, sides)?;
    let (b, t, width) = x.dims3()?;
    let cut = (b, t, turn.heads, width / turn.heads);
    let x = match turn.first {
        First::Nothing => x.reshape(cut)?,
        // The bias's gradient is a sum over all tokens, computed in the bias's own number format.
        First::Bias(bias) => {
            x.to_dtype(bias.dtype())?.broadcast_add(bias)?.to_dtype(x.dtype())?.reshape(cut)?
        }
        First::Norm(weight, epsilon) if weight.elem_count() == width => {
            norm(&x, weight, epsilon)?.reshape(cut)?
        }
        First::Norm(weight, epsilon) => norm(&x.reshape(cut)?, weight, epsilon)?,
    };
    let x_bnte = x.transpose(1, 2)?.contiguous()?;
    turn.rope.map_or(Ok(x_bnte.clone()), |rope| rotate(&x_bnte, rope))
}

/// Computes the inside of the feed-forward part: `silu(x · gateᵀ) · (x · upᵀ)`, or another activation.
pub(crate) fn gated(
    x: &Tensor,
    [gate, up]: [&Tensor; 2],
    sides: Sides,
    activation: Activation,
) -> Result<Tensor> {
    let gate = linear(x, gate, sides)?;
    let gate = match activation {
        Activation::Silu => silu(&gate)?,
        // The tanh approximation.
        Activation::GeluTanh => gate.gelu()?,
    };
    gate * linear(x, up, sides)?
}

/// Returns 1 for each of the `count` largest in the last dimension (ties: the first), else 0, f32.
pub(crate) fn chosen(x: &Tensor, count: usize) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    let numbers: Vec<f32> = x.flatten_all()?.to_vec1()?;
    let mut mask = vec![0.0_f32; numbers.len()];
    for (row, mask) in numbers.chunks_exact(width).zip(mask.chunks_exact_mut(width)) {
        let mut order: Vec<usize> = (0..width).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order[..count].iter().for_each(|place| mask[*place] = 1.0);
    }
    Tensor::from_vec(mask, x.dims(), x.device())
}

/// Returns `cap · tanh(x / cap)`: close to x if x is small, and never beyond the cap.
pub(crate) fn capped(x: &Tensor, cap: f64) -> Result<Tensor> {
    (x / cap)?.tanh()? * cap
}

/// Applies the rotary embedding in the layout of Hugging Face checkpoints: a head's first half
/// is paired with its second.
fn rotate(x_bnte: &Tensor, (cos, sin): &RopeTable) -> Result<Tensor> {
    let kind = x_bnte.dtype();
    let x_bnte = x_bnte.to_dtype(DType::F32)?;
    let half = x_bnte.dim(D::Minus1)? / 2;
    let (a, b) = (x_bnte.narrow(D::Minus1, 0, half)?, x_bnte.narrow(D::Minus1, half, half)?);
    let first = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
    let second = (b.broadcast_mul(cos)? + a.broadcast_mul(sin)?)?;
    Tensor::cat(&[first, second], D::Minus1)?.to_dtype(kind)
}

/// How products of queries and keys are computed, scaled and capped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    /// Divisor of the scores.
    pub over: f64,
    /// Cap of the scores.
    pub cap: Option<f64>,
    /// The sides of both products of attention.
    pub sides: Sides,
}

impl Scores {
    /// Returns the settings of a model.
    pub fn of(shape: &Shape) -> Self {
        let over = shape.variant.attention.map_or((shape.head as f64).sqrt(), |scale| 1.0 / scale);
        Self { over, cap: shape.variant.attention_cap, sides: Sides::Plain }
    }
}

/// Computes attention. Takes queries `[B, H, T, E]`, keys and values `[B, K, S, E]`, and a bias for
/// the scores, `[1 or B, 1, 1 or T, S]`. Returns the output of each query head, `[B, H, T, E]`.
///
/// Query heads that share a key head become additional rows of its queries, so that keys and
/// values are never repeated.
pub(crate) fn attend(
    q_bhte: &Tensor,
    k_bkse: &Tensor,
    v_bkse: &Tensor,
    bias: &Tensor,
    scores: Scores,
) -> Result<Tensor> {
    let (b, h, t, e) = q_bhte.dims4()?;
    let (_, k, s, _) = k_bkse.dims4()?;
    let rows = h / k * t;
    let products = product(&q_bhte.reshape((b, k, rows, e))?, &k_bkse.transpose(2, 3)?, scores.sides)?;
    let scaled = (products.reshape((b, h, t, s))?.to_dtype(DType::F32)? / scores.over)?;
    let scaled = scores.cap.map_or(Ok(scaled.clone()), |cap| capped(&scaled, cap))?;
    let weights = softmax(&scaled.broadcast_add(bias)?, D::Minus1)?.to_dtype(v_bkse.dtype())?;
    product(&weights.reshape((b, k, rows, s))?, v_bkse, scores.sides)?.reshape((b, h, t, e))
}

/// Returns the causal mask, `[1, 1, T, T]`, as a bias for the scores: 0 where a token may look
/// (not ahead, not past its window), else -1e9.
pub(crate) fn ahead(tokens: usize, window: Option<usize>, device: &Device) -> Result<Tensor> {
    let window = window.unwrap_or(tokens);
    let row = |i| (0..tokens).map(move |j| if j <= i && i < j + window { 0.0_f32 } else { -1e9 });
    Tensor::from_vec((0..tokens).flat_map(row).collect(), (1, 1, tokens, tokens), device)
}

/// Puts heads side by side: `[B, T, H E]` from `[B, H, T, E]`.
pub(crate) fn side_by_side(x_bhte: &Tensor) -> Result<Tensor> {
    let (b, h, t, e) = x_bhte.dims4()?;
    x_bhte.transpose(1, 2)?.reshape((b, t, h * e))
}
