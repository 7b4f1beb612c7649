//! The head: from the stream to log-probabilities of the tokens that came, and back. The vocabulary can be
//! large, so logits are made for a few rows at a time and never kept; the backward pass makes them again,
//! and is written out, for candle's own would hold several copies of them.
//!
//! Shapes: R rows, N of them at a time, D hidden, V vocabulary.

use candle_core::{D, DType, Result, Tensor};

use crate::core::Thought;

/// Logits at a time: rows times vocabulary. In float32 a quarter of a GiB, of which a few live at once.
pub const AT_ONCE: usize = 1 << 26;

/// The head of a model at a sampling temperature.
pub struct Head {
    /// Its matrix, `[V, D]`.
    pub weight: Tensor,
    /// What logits are divided by before they become probabilities.
    pub temperature: f32,
}

impl Head {
    /// What the model thinks of each target `[R]`, after the final norm: `x` is `[R, D]`.
    pub fn think(&self, x: &Tensor, targets: &Tensor) -> Result<Vec<Thought>> {
        let (mut log_probs, mut entropies) = (Vec::new(), Vec::new());
        for (from, n) in self.chunks(x)? {
            let (logs, probabilities) = self.logs(&x.narrow(0, from, n)?)?;
            let targets = targets.narrow(0, from, n)?.unsqueeze(1)?;
            log_probs.push(logs.gather(&targets, 1)?.squeeze(1)?);
            entropies.push((probabilities * logs)?.sum(D::Minus1)?.neg()?);
        }
        if log_probs.is_empty() {
            return Ok(Vec::new());
        }
        // To the host in one go: each wait for a device costs more than the numbers.
        let log_probs = Tensor::cat(&log_probs, 0)?.to_vec1::<f32>()?;
        let entropies = Tensor::cat(&entropies, 0)?.to_vec1::<f32>()?;
        let thought = |(log_prob, entropy)| Thought { log_prob, entropy };
        Ok(log_probs.into_iter().zip(entropies).map(thought).collect())
    }

    /// The backward pass: from the gradient of each target's log-probability, `[R]`, those of `x`, in its
    /// kind of number, and of the matrix, in float32.
    pub fn back(&self, x: &Tensor, targets: &Tensor, dlog_probs: &Tensor) -> Result<(Tensor, Tensor)> {
        let mut dx = Vec::new();
        let mut dweight = self.weight.zeros_like()?.to_dtype(DType::F32)?;
        for (from, n) in self.chunks(x)? {
            let x = x.narrow(0, from, n)?;
            let (_, probabilities) = self.logs(&x)?;
            let dlog_probs = dlog_probs.narrow(0, from, n)?.unsqueeze(1)?.contiguous()?;
            let targets = targets.narrow(0, from, n)?.unsqueeze(1)?.contiguous()?;
            // d log p[target] / d logit[v] = [v = target] - p[v]
            let dlogits = probabilities.broadcast_mul(&dlog_probs.neg()?)?;
            dlogits.scatter_add_set(&targets, &dlog_probs, 1)?;
            let dlogits = (dlogits / f64::from(self.temperature))?.to_dtype(x.dtype())?;
            dx.push(dlogits.matmul(&self.weight)?);
            dweight = (dweight + dlogits.t()?.matmul(&x)?.to_dtype(DType::F32)?)?;
        }
        Ok((Tensor::cat(&dx, 0)?, dweight))
    }

    /// Logarithms of probabilities and probabilities of all tokens, `[N, V]` each, f32.
    fn logs(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let logits = (x.matmul(&self.weight.t()?)?.to_dtype(DType::F32)? / f64::from(self.temperature))?;
        let low = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?)?;
        drop(logits);
        let total = low.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let logs = low.broadcast_sub(&total)?;
        let probabilities = logs.exp()?;
        Ok((logs, probabilities))
    }

    /// First row and number of rows of each chunk.
    fn chunks(&self, x: &Tensor) -> Result<Vec<(usize, usize)>> {
        let (rows, most) = (x.dim(0)?, (AT_ONCE / self.weight.dim(0)?).max(1));
        Ok((0..rows).step_by(most).map(|from| (from, most.min(rows - from))).collect())
    }
}
