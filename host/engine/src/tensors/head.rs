//! The head: from the stream to log-probabilities of the target tokens, and back. Vocabularies can
//! be large, so logits are computed for a few rows at a time and never kept. The backward pass
//! recomputes them and is written by hand, because candle's own would hold several copies of them.
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
    /// Scales and caps logits, if the model does that.
    pub decoder: Decoder<'a>,
    /// The same settings, for the backward pass.
    pub variant: &'a Variant,
    /// Divisor of the logits.
    pub temperature: f32,
    pub learning: &'a dyn Learning,
    /// The tokens that targets were drawn from, `[R, K]`: see [`super::batch::Batch::masks`].
    pub masks: Option<&'a Tensor>,
}

impl Head<'_> {
    /// Returns statistics of each target `[R]`, as [`Learning::logprob_entropy`] defines them:
    /// `[R, 3]`. `x` is `[R, D]`, after the final norm.
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

    /// Runs the backward pass from the gradients by each target's statistics, `[R]`. Returns the gradient
    /// of `x`, in its number format, and that of the matrix, f32, added to `sum`; `None` unless `wanted`.
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
            // The derivative of the cap and of the scaling.
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

    /// Masks the logits of rows from `from` on: excluded tokens get a very low logit.
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

    /// Returns the first row and the number of rows of each chunk.
    fn chunks(&self, x: &Tensor) -> Result<Vec<(usize, usize)>> {
        let (rows, most) = (x.dim(0)?, (self.learning.logits() / self.weight.dim(0)?).max(1));
        Ok((0..rows).step_by(most).map(|from| (from, most.min(rows - from))).collect())
    }
}

/// Copies statistics to the host at once: each wait for a device costs more than the numbers.
pub fn told(statistics: &Tensor) -> Result<Vec<TokenStatistics>> {
    let told = |row: Vec<f32>| TokenStatistics { log_prob: row[0], entropy: row[1] };
    Ok(statistics.to_vec2::<f32>()?.into_iter().map(told).collect())
}
