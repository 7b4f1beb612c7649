//! What scoring and learning are made of: blocks there and back, the head's way from logits to what the model
//! thinks of tokens and back, the optimizer's step. [`Candle`] has them of candle's own operations and
//! differentiation, the plain twin; `kernels.rs` of kernels of ours.
//!
//! Shapes: B sequences, T tokens, R of them of answers, D hidden, K heads of keys and values, E head, N rows, V
//! vocabulary.

use candle_core::{D, DType, Device, Result, Tensor, Var};

use super::batch::Batch;
use super::gradients::Gradients;
use crate::core::TokenGradients;
use crate::model::operations::{Scores, ahead, attend, side_by_side};
use crate::model::{Checkpoint, Decoder, ModelResult, RopeTables};

/// The numbers of a step of AdamW, beside what each weight has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// What gradients are multiplied by, so that their norm is not too large.
    pub cut: f64,
    /// Decays of the moments.
    pub betas: (f64, f64),
    /// `1 / sqrt(1 - beta2^steps)`.
    pub root: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// What is kept of a weight.
    pub keep: f64,
    /// The learning rate over `1 - beta1^steps`.
    pub rate: f64,
}

/// A weight that is trained.
#[derive(Clone, Copy, Debug)]
pub struct Trained<'a> {
    /// Itself, f32.
    pub master: &'a Var,
    /// The copy that the model computes with, where there is one.
    pub copy: Option<&'a Var>,
    /// Its gradient, f32; none is zero.
    pub gradient: Option<&'a Tensor>,
}

/// Rotary embeddings and attention masks of a pass's tokens.
pub struct PassTokens {
    /// Of queries and keys.
    pub rope: RopeTables,
    /// The attention mask, from [`Learning::ahead`].
    pub ahead: Tensor,
    /// The mask of layers with a sliding window, if there are any.
    pub near: Option<Tensor>,
}

impl PassTokens {
    /// For sequences of so many tokens, padding included, from the first position on.
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
    /// The backward pass, if it was asked for.
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
    /// By each row's entropy, where there is one.
    pub entropies: Option<Tensor>,
}

impl Slopes {
    /// Those of answers, on a device.
    pub fn new(gradients: TokenGradients, device: &Device) -> Result<Self> {
        let rows = |numbers: Vec<f32>| {
            let count = numbers.len();
            Tensor::from_vec(numbers, count, device)
        };
        let TokenGradients { log_probs, entropies } = gradients;
        let entropies = if entropies.is_empty() { None } else { Some(rows(entropies)?) };
        Ok(Self { log_probs: rows(log_probs)?, entropies })
    }

    /// Those of `n` rows from one on.
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
    /// Tokens of a batch's sequences come in multiples of this.
    fn even(&self) -> usize;

    /// Logits at a time: rows times vocabulary.
    fn logits(&self) -> usize;

    /// What [`Learning::block`] wants to be told of who may look where, among so many tokens, of which each sees so
    /// many, itself included, or all before it.
    fn ahead(&self, tokens: usize, window: Option<usize>, device: &Device) -> Result<Tensor>;

    /// A block, in which no token looks ahead, from the stream `[B, T, D]` before it. `keep` says whether the way
    /// back will be gone.
    fn block<'a>(
        &'a self,
        weights: &'a Checkpoint,
        layer: usize,
        x_btd: &Tensor,
        way: &PassTokens,
        keep: bool,
    ) -> ModelResult<BlockOutput<'a>>;

    /// The rows that foretell an answer's token, after the final norm, `[R, D]`, of the stream `[B, T, D]`; and
    /// the way back, where it was asked for. The other rows have no part in it.
    fn answers<'a>(
        &'a self,
        weights: &'a Checkpoint,
        x_btd: &Tensor,
        batch: &'a Batch,
        keep: bool,
    ) -> ModelResult<(Tensor, Option<Box<dyn Backward + 'a>>)>;

    /// A head's gradient by its matrix, `[V, D]`, f32, takes up that of some rows: `slopesᵀ · x`, from `[N, V]` and
    /// `[N, D]`. Without one that is there already it is the first.
    fn headed(&self, sum: Option<Tensor>, slopes: &Tensor, x: &Tensor) -> Result<Tensor>;

    /// The embedding's gradient, `[V, D]`, f32, with what is added to it by that of a batch's embeddings,
    /// `[B, T, D]`. Summed in float32 whatever the kind of number: a common token is there thousands of
    /// times.
    fn embedded(&self, sum: Tensor, slopes: &Tensor, batch: &Batch) -> Result<Tensor>;

    /// Of each row of logits `[N, V]`, over a temperature: the log-probability of its target, of `[N]`, the
    /// entropy, and the logarithm of the sum of all exponentials; `[N, 3]`, f32.
    fn logprob_entropy(&self, logits: &Tensor, targets: &Tensor, temperature: f32) -> Result<Tensor>;

    /// From the gradient by what was said of each row to those of its logits, `[N, V]`, in their kind of number:
    /// `d log p[target] / d logit[v] = [v = target] - p[v]` and `d H / d logit[v] = -p[v] (log p[v] + H)`, over the
    /// temperature. `statistics` are what [`Learning::logprob_entropy`] gave.
    fn dlogits(
        &self,
        logits: Tensor,
        targets: &Tensor,
        statistics: &Tensor,
        slopes: &Slopes,
        temperature: f32,
    ) -> Result<Tensor>;

    /// The sum of the squares of all numbers of these, f32 each.
    fn squares(&self, gradients: &[&Tensor]) -> Result<f64>;

    /// One step of AdamW on a weight and its copy, in place. Takes its moments and gives them back.
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

    /// In float32 a quarter of a GiB, of which a few live at once.
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

    /// One number comes to the host, not one for each tensor.
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

/// Of each row the logarithm of the sum of e^logit, `[N, 1]`, and the logarithms of all probabilities, `[N,
/// V]`; f32.
fn logs(logits: &Tensor, temperature: f32) -> Result<(Tensor, Tensor)> {
    let logits = (logits.to_dtype(DType::F32)? / f64::from(temperature))?;
    let top = logits.max_keepdim(D::Minus1)?;
    let low = logits.broadcast_sub(&top)?;
    drop(logits);
    let total = low.exp()?.sum_keepdim(D::Minus1)?.log()?;
    Ok(((top + &total)?, low.broadcast_sub(&total)?))
}

/// Part of the way that candle differentiates: it begins and ends here, so that candle's backward pass stops there.
struct Taped<'a> {
    weights: &'a Checkpoint,
    input: Var,
    out: Tensor,
}

/// A decoder, and what a part of the way begins with. `keep` says whether it is differentiated.
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
