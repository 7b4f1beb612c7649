//! The operations of scoring and learning: blocks forward and backward, the head from logits to
//! statistics and back, and the optimizer's step. [`Candle`] implements them with candle's own
//! operations and differentiation, as the reference; `kernels.rs` with this crate's kernels.
//!
//! Shapes: B sequences, T tokens, R tokens of answers, D hidden, K key and value heads, E head,
//! N rows, V vocabulary.

use candle_core::{D, DType, Device, Result, Tensor, Var};

use super::batch::Batch;
use super::gradients::Gradients;
use crate::core::TokenGradients;
use crate::model::operations::{Scores, ahead, attend, side_by_side};
use crate::model::{Checkpoint, Decoder, ModelResult, RopeTables};

/// The numbers of a step of AdamW, the same for all weights.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Clipping factor of the gradients.
    pub cut: f64,
    /// Decays of the moments.
    pub betas: (f64, f64),
    /// `1 / sqrt(1 - beta2^steps)`.
    pub root: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Factor of a weight in decoupled weight decay.
    pub keep: f64,
    /// The learning rate over `1 - beta1^steps`.
    pub rate: f64,
}

/// A trained weight.
#[derive(Clone, Copy, Debug)]
pub struct Trained<'a> {
    /// The weight, f32.
    pub master: &'a Var,
    /// The copy that the model computes with, if there is one.
    pub copy: Option<&'a Var>,
    /// Its gradient, f32; `None` counts as zero.
    pub gradient: Option<&'a Tensor>,
}

/// Rotary embeddings and attention masks of a pass's tokens.
pub struct PassTokens {
    /// Rotary tables of queries and keys.
    pub rope: RopeTables,
    /// The attention mask, from [`Learning::ahead`].
    pub ahead: Tensor,
    /// The mask of layers with a sliding window, if there are any.
    pub near: Option<Tensor>,
}

impl PassTokens {
    /// Returns tables and masks for `tokens` tokens, including padding, from the first position on.
    pub fn new(
        learning: &dyn Learning,
        weights: &Checkpoint,
        tokens: usize,
        device: &Device,
    ) -> ModelResult<Self> {
        let positions = Tensor::arange(0, tokens as u32, device)?.unsqueeze(0)?;
        let rope = Decoder::frozen(weights).rope(&positions)?;
        let near = weights
            .shape
            .variant
            .window
            .map(|_| learning.ahead(tokens, weights.shape.variant.window, device));
        Ok(Self { rope, ahead: learning.ahead(tokens, None, device)?, near: near.transpose()? })
    }

    /// The attention mask of a layer.
    pub fn ahead(&self, weights: &Checkpoint, layer: usize) -> &Tensor {
        self.near.as_ref().filter(|_| weights.shape.window(layer).is_some()).unwrap_or(&self.ahead)
    }
}

/// The output of a block.
pub struct BlockOutput<'a> {
    /// The stream after the block, `[B, T, D]`.
    pub stream: Tensor,
    /// Its rotated keys, and its values: `[B, K, T, E]` each.
    pub cache: (Tensor, Tensor),
    /// The backward pass, if requested.
    pub back: Option<Box<dyn Backward + 'a>>,
}

/// A part of the forward pass, kept for its backward pass.
pub trait Backward {
    /// Returns the gradient of the input, given that of the output, and adds to the gradients of weights.
    fn back(self: Box<Self>, slope: &Tensor, gradients: &mut Gradients) -> ModelResult<Tensor>;
}

/// Gradients by the statistics of some rows, `[N]` each, f32.
#[derive(Clone, Debug)]
pub struct Slopes {
    /// By the log-probability of each row's target.
    pub log_probs: Tensor,
    /// By each row's entropy, if the loss uses it.
    pub entropies: Option<Tensor>,
}

impl Slopes {
    /// Copies the gradients of answers to a device.
    pub fn new(gradients: TokenGradients, device: &Device) -> Result<Self> {
        let rows = |numbers: Vec<f32>| {
            let count = numbers.len();
            Tensor::from_vec(numbers, count, device)
        };
        let TokenGradients { log_probs, entropies } = gradients;
        let entropies = if entropies.is_empty() { None } else { Some(rows(entropies)?) };
        Ok(Self { log_probs: rows(log_probs)?, entropies })
    }

    /// Returns the gradients of `n` rows from `from` on.
    pub fn narrow(&self, from: usize, n: usize) -> Result<Self> {
        let rows = |tensor: &Tensor| tensor.narrow(0, from, n);
        Ok(Self {
            log_probs: rows(&self.log_probs)?,
            entropies: self.entropies.as_ref().map(rows).transpose()?,
        })
    }
}

/// candle's own operations, differentiated by candle.
#[derive(Clone, Copy, Debug)]
pub struct Candle;

/// Operations of scoring and learning.
pub trait Learning: Send + Sync {
    /// Returns the number of which a batch's sequence length must be a multiple.
    fn even(&self) -> usize;

    /// Returns the number of logits to compute at a time: rows times vocabulary.
    fn logits(&self) -> usize;

    /// Returns the attention mask for [`Learning::block`], for `tokens` tokens. Each token sees the
    /// `window` tokens up to itself, or all tokens before it.
    fn ahead(&self, tokens: usize, window: Option<usize>, device: &Device) -> Result<Tensor>;

    /// Runs a block with causal attention on the stream `[B, T, D]`. `keep` says whether a backward
    /// pass will follow.
    fn block<'a>(
        &'a self,
        weights: &'a Checkpoint,
        layer: usize,
        x_btd: &Tensor,
        way: &PassTokens,
        keep: bool,
    ) -> ModelResult<BlockOutput<'a>>;

    /// Returns the rows that predict an answer's token, after the final norm, `[R, D]`, from the
    /// stream `[B, T, D]`; and the backward pass if requested. Other rows do not contribute.
    fn answers<'a>(
        &'a self,
        weights: &'a Checkpoint,
        x_btd: &Tensor,
        batch: &'a Batch,
        keep: bool,
    ) -> ModelResult<(Tensor, Option<Box<dyn Backward + 'a>>)>;

    /// Adds `slopesᵀ · x`, from `[N, V]` and `[N, D]`, to the gradient of the head's matrix,
    /// `[V, D]`, f32. Without `sum` it is the first.
    fn headed(&self, sum: Option<Tensor>, slopes: &Tensor, x: &Tensor) -> Result<Tensor>;

    /// Adds the gradient of a batch's embeddings, `[B, T, D]`, to that of the embedding matrix, `[V, D]`,
    /// f32. Sums are float32 for every number format, because a common token occurs thousands of times.
    fn embedded(&self, sum: Tensor, slopes: &Tensor, batch: &Batch) -> Result<Tensor>;

    /// Returns for each row of logits `[N, V]`, over the temperature: the log-probability of its
    /// target, from `[N]`, the entropy, and the logarithm of the sum of exponentials; `[N, 3]`, f32.
    fn logprob_entropy(&self, logits: &Tensor, targets: &Tensor, temperature: f32) -> Result<Tensor>;

    /// Returns the gradients of the logits, `[N, V]`, in their number format, from those of the statistics:
    /// `d log p[target] / d logit[v] = [v = target] - p[v]` and `d H / d logit[v] = -p[v] (log p[v] + H)`,
    /// over the temperature. `statistics` come from [`Learning::logprob_entropy`].
    fn dlogits(
        &self,
        logits: Tensor,
        targets: &Tensor,
        statistics: &Tensor,
        slopes: &Slopes,
        temperature: f32,
    ) -> Result<Tensor>;

    /// Returns the sum of the squares of all numbers, f32 each.
    fn squares(&self, gradients: &[&Tensor]) -> Result<f64>;

    /// Makes one step of AdamW on a weight and its copy, in place. Takes and returns its moments.
    fn adamw(
        &self,
        weight: Trained<'_>,
        moments: (Tensor, Tensor),
        rates: &Rates,
    ) -> Result<(Tensor, Tensor)>;
}

impl Learning for Candle {
    fn even(&self) -> usize {
        1
    }

    /// A quarter of a GiB in float32, of which several copies exist at once.
    fn logits(&self) -> usize {
        1 << 26
    }

    fn ahead(&self, tokens: usize, window: Option<usize>, device: &Device) -> Result<Tensor> {
        ahead(tokens, window, device)
    }

    fn block<'a>(
        &'a self,
        weights: &'a Checkpoint,
        layer: usize,
        x_btd: &Tensor,
        way: &PassTokens,
        keep: bool,
    ) -> ModelResult<BlockOutput<'a>> {
        let (decoder, input) = taped(weights, x_btd, keep)?;
        let (mut cache, scores) = (None, Scores::of(&weights.shape));
        let look = |q: &Tensor, k: &Tensor, v: &Tensor| {
            cache = Some((k.detach(), v.detach()));
            side_by_side(&attend(q, k, v, way.ahead(weights, layer), scores)?)
        };
        let stream = decoder.block(layer, input.as_tensor(), &way.rope, look)?;
        let cache = cache.ok_or_else(|| candle_core::Error::Msg("a block looks once".to_owned()))?;
        let (stream, back) = kept(weights, input, stream, keep);
        Ok(BlockOutput { stream, cache, back })
    }

    fn answers<'a>(
        &'a self,
        weights: &'a Checkpoint,
        x_btd: &Tensor,
        batch: &'a Batch,
        keep: bool,
    ) -> ModelResult<(Tensor, Option<Box<dyn Backward + 'a>>)> {
        let (decoder, input) = taped(weights, x_btd, keep)?;
        let rows = input.as_tensor().flatten(0, 1)?.index_select(&batch.places, 0)?;
        Ok(kept(weights, input, decoder.finish(&rows)?, keep))
    }

    fn headed(&self, sum: Option<Tensor>, slopes: &Tensor, x: &Tensor) -> Result<Tensor> {
        let more = slopes.t()?.matmul(x)?.to_dtype(DType::F32)?;
        sum.map_or(Ok(more.clone()), |sum| sum + more)
    }

    fn embedded(&self, sum: Tensor, slopes: &Tensor, batch: &Batch) -> Result<Tensor> {
        let slopes = slopes.flatten(0, 1)?.to_dtype(DType::F32)?.contiguous()?;
        sum.index_add(&batch.tokens.flatten_all()?, &slopes, 0)
    }

    fn logprob_entropy(&self, logits: &Tensor, targets: &Tensor, temperature: f32) -> Result<Tensor> {
        let (sums, logs) = logs(logits, temperature)?;
        let chosen = logs.gather(&targets.unsqueeze(1)?, 1)?;
        let entropies = (logs.exp()? * logs)?.sum_keepdim(D::Minus1)?.neg()?;
        Tensor::cat(&[chosen, entropies, sums], 1)
    }

    fn dlogits(
        &self,
        logits: Tensor,
        targets: &Tensor,
        statistics: &Tensor,
        slopes: &Slopes,
        temperature: f32,
    ) -> Result<Tensor> {
        let logs = logs(&logits, temperature)?.1;
        let dlog_probs = slopes.log_probs.unsqueeze(1)?.contiguous()?;
        let dlogits = match &slopes.entropies {
            None => logs.exp()?.broadcast_mul(&dlog_probs.neg()?)?,
            Some(dentropies) => {
                let over = logs.broadcast_add(&statistics.narrow(1, 1, 1)?)?;
                let more = over.broadcast_mul(&dentropies.unsqueeze(1)?)?.broadcast_add(&dlog_probs)?;
                (logs.exp()? * more)?.neg()?
            }
        };
        dlogits.scatter_add_set(&targets.unsqueeze(1)?.contiguous()?, &dlog_probs, 1)?;
        (dlogits / f64::from(temperature))?.to_dtype(logits.dtype())
    }

    /// All sums are copied to the host at once.
    fn squares(&self, gradients: &[&Tensor]) -> Result<f64> {
        let squares = gradients.iter().map(|g| g.sqr()?.sum_all()).collect::<Result<Vec<_>>>()?;
        if squares.is_empty() {
            return Ok(0.0);
        }
        Ok(Tensor::stack(&squares, 0)?.to_vec1::<f32>()?.iter().map(|s| f64::from(*s)).sum())
    }

    fn adamw(
        &self,
        weight: Trained<'_>,
        (mean, square): (Tensor, Tensor),
        r: &Rates,
    ) -> Result<(Tensor, Tensor)> {
        let gradient = match weight.gradient {
            Some(gradient) => (gradient * r.cut)?,
            None => weight.master.zeros_like()?,
        };
        let (beta1, beta2) = r.betas;
        let mean = ((mean * beta1)? + (&gradient * (1.0 - beta1))?)?;
        let square = ((square * beta2)? + (gradient.sqr()? * (1.0 - beta2))?)?;
        drop(gradient);
        let root = ((square.sqrt()? * r.root)? + r.epsilon)?;
        let kept = (weight.master.as_detached_tensor() * r.keep)?;
        let new = (kept - ((&mean / root)? * r.rate)?)?;
        weight.master.set(&new)?;
        if let Some(copy) = weight.copy {
            copy.set(&new.to_dtype(copy.dtype())?)?;
        }
        Ok((mean, square))
    }
}

/// Returns the logarithm of each row's sum of exponentials, `[N, 1]`, and all
/// log-probabilities, `[N, V]`; f32.
fn logs(logits: &Tensor, temperature: f32) -> Result<(Tensor, Tensor)> {
    let logits = (logits.to_dtype(DType::F32)? / f64::from(temperature))?;
    let top = logits.max_keepdim(D::Minus1)?;
    let low = logits.broadcast_sub(&top)?;
    drop(logits);
    let total = low.exp()?.sum_keepdim(D::Minus1)?.log()?;
    Ok(((top + &total)?, low.broadcast_sub(&total)?))
}

/// A part of the forward pass that candle differentiates; candle's backward pass stops at its input.
struct Taped<'a> {
    weights: &'a Checkpoint,
    input: Var,
    out: Tensor,
}

/// Returns a decoder and a part's input. `keep` says whether the part is differentiated.
fn taped<'a>(weights: &'a Checkpoint, x: &Tensor, keep: bool) -> Result<(Decoder<'a>, Var)> {
    let decoder = if keep { Decoder::new(weights) } else { Decoder::frozen(weights) };
    Ok((decoder, Var::from_tensor(x)?))
}

fn kept<'a>(
    weights: &'a Checkpoint,
    input: Var,
    out: Tensor,
    keep: bool,
) -> (Tensor, Option<Box<dyn Backward + 'a>>) {
    let stream = out.detach();
    (stream, keep.then(|| Box::new(Taped { weights, input, out }) as Box<dyn Backward + 'a>))
}

impl Backward for Taped<'_> {
    fn back(self: Box<Self>, slope: &Tensor, gradients: &mut Gradients) -> ModelResult<Tensor> {
        let mut store = (&self.out * slope)?.sum_all()?.backward()?;
        for (name, weight) in &self.weights.weights {
            if let Some(gradient) = store.remove(weight) {
                gradients.add(name, &gradient)?;
            }
        }
        let dx = store.remove(&self.input);
        let dx = dx.ok_or_else(|| candle_core::Error::Msg("the input has no gradient".to_owned()))?;
        Ok(dx.detach())
    }
}
