//! The head: from the stream to log-probabilities of the tokens that came, and back. The vocabulary can be
//! large, so logits are made for a few rows at a time and never kept; the backward pass makes them again,
//! and is written out, for candle's own would hold several copies of them.
//!
//! Shapes: R rows, N of them at a time, D hidden, V vocabulary.

use candle_core::{DType, Result, Tensor};

use super::learning::{Learning, Slopes};
use crate::core::TokenStatistics;
use crate::mask::LEFT_OUT;
use crate::model::{Decoder, Variant};

/// The head of a model at a sampling temperature.
pub struct Head<'a> {
    /// Its matrix, `[V, D]`.
    pub weight: Tensor,
    /// What becomes of logits, where that is something.
    pub decoder: Decoder<'a>,
    /// The same, for the way back.
    pub variant: &'a Variant,
    /// What logits are divided by before they become probabilities.
    pub temperature: f32,
    pub learning: &'a dyn Learning,
    /// What targets were drawn from, `[R, K]`: see [`super::batch::Batch::masks`].
    pub masks: Option<&'a Tensor>,
}

impl Head<'_> {
    /// What the model thinks of each target `[R]`, after the final norm: `x` is `[R, D]`. `[R, 3]`, as
    /// [`Learning::logprob_entropy`] has it.
    pub fn logprob_entropy(&self, x: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let one = |(from, n)| {
            self.learning.logprob_entropy(
                &self.left(self.logits(&x.narrow(0, from, n)?)?, from)?,
                &targets.narrow(0, from, n)?,
                self.temperature,
            )
        };
        let statistics = self.chunks(x)?.into_iter().map(one).collect::<Result<Vec<_>>>()?;
        if statistics.is_empty() {
            return Tensor::zeros((0, 3), DType::F32, x.device());
        }
        Tensor::cat(&statistics, 0)
    }

    /// The backward pass: from the gradients by what was said of each target, `[R]`, those of `x`, in its kind of number,
    /// and of the matrix, in float32, added to `sum`; none of that where it is not `wanted`.
    pub fn back(
        &self,
        x: &Tensor,
        targets: &Tensor,
        statistics: &Tensor,
        slopes: &Slopes,
        (wanted, sum): (bool, Option<Tensor>),
    ) -> Result<(Tensor, Option<Tensor>)> {
        let (mut dx, mut dweight) = (Vec::new(), sum);
        for (from, n) in self.chunks(x)? {
            let chunk = |tensor: &Tensor| tensor.narrow(0, from, n);
            let x = chunk(x)?;
            let (targets, statistics, slopes) =
                (chunk(targets)?, chunk(statistics)?, slopes.narrow(from, n)?);
            let logits = self.logits(&x)?;
            // The slope of what keeps them under a cap, and of what they are divided by.
            let slope = match self.variant.logit_cap {
                Some(cap) => Some((((&logits / cap)?.sqr()?.neg()? + 1.0)? / self.variant.logits)?),
                None => None,
            };
            let logits = self.left(logits, from)?;
            let dlogits = self.learning.dlogits(logits, &targets, &statistics, &slopes, self.temperature)?;
            let dlogits = match slope {
                Some(slope) => (dlogits * slope)?,
                None if self.variant.logits != 1.0 => (dlogits / self.variant.logits)?,
                None => dlogits,
            };
            dx.push(dlogits.matmul(&self.weight)?);
            if wanted {
                dweight = Some(self.learning.headed(dweight.take(), &dlogits, &x)?);
            }
        }
        let dweight = match dweight {
            None if wanted => Some(self.weight.zeros_like()?.to_dtype(DType::F32)?),
            sum => sum,
        };
        Ok((Tensor::cat(&dx, 0)?, dweight))
    }

    /// Logits of rows from one on, of which those that sampling left out are next to impossible.
    fn left(&self, logits: Tensor, from: usize) -> Result<Tensor> {
        let Some(masks) = self.masks else { return Ok(logits) };
        let kept = masks.narrow(0, from, logits.dim(0)?)?.contiguous()?;
        let left_out = Tensor::full(LEFT_OUT, logits.dims(), logits.device())?.to_dtype(logits.dtype())?;
        left_out.scatter_set(&kept, &logits.gather(&kept, 1)?, 1)?;
        Ok(left_out)
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.decoder.logits(x.matmul(&self.weight.t()?)?)
    }

    /// First row and number of rows of each chunk.
    fn chunks(&self, x: &Tensor) -> Result<Vec<(usize, usize)>> {
        let (rows, most) = (x.dim(0)?, (self.learning.logits() / self.weight.dim(0)?).max(1));
        Ok((0..rows).step_by(most).map(|from| (from, most.min(rows - from))).collect())
    }
}

/// Thoughts on the host, in one go: each wait for a device costs more than the numbers.
pub fn told(statistics: &Tensor) -> Result<Vec<TokenStatistics>> {
    let told = |row: Vec<f32>| TokenStatistics { log_prob: row[0], entropy: row[1] };
    Ok(statistics.to_vec2::<f32>()?.into_iter().map(told).collect())
}
