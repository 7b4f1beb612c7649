//! The clipped policy-gradient loss over tokens.

use candle_core::{D, Result, Tensor};

/// The bounds of the ratio between new and old probabilities: `1 - low` to `1 + high`. DAPO's
/// "clip-higher" has `high` above `low`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// How far below 1.
    pub low: f64,
    /// How far above 1.
    pub high: f64,
}

/// Log-probability of each token after the first, given those before it: `[B, T - 1]` of logits
/// `[B, T, V]` and tokens `[B, T]`.
pub fn token_log_probs(logits: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let (_, t, _) = logits.dims3()?;
    let ahead = logits.narrow(1, 0, t - 1)?;
    let next = tokens.narrow(1, 1, t - 1)?.contiguous()?.unsqueeze(2)?;
    let chosen = ahead.gather(&next, D::Minus1)?.squeeze(2)?;
    chosen - ahead.log_sum_exp(D::Minus1)?
}

/// PPO's clipped loss, mean over the tokens of `mask`: `-min(ratio · A, clip(ratio) · A)`
/// (Schulman et al. 2017, eq. 7; token mean as in DAPO). All `[B, T]`, f32.
pub fn clipped(
    log_probs: &Tensor,
    old: &Tensor,
    advantages: &Tensor,
    mask: &Tensor,
    clip: Clip,
) -> Result<Tensor> {
    let ratio = (log_probs - old)?.exp()?;
    let free = (&ratio * advantages)?;
    let bound = (ratio.clamp(1.0 - clip.low, 1.0 + clip.high)? * advantages)?;
    let loss = (free.minimum(&bound)? * mask)?.neg()?;
    loss.sum_all()? / mask.sum_all()?
}
