//! Attention of whole sequences, forward and backward: by `flash.cu`, which keeps no weights, or as products
//! with `softmax.cu` between them, which keeps them all.
//!
//! Shapes: B sequences, T tokens, H query heads, K key and value heads, E head.

use candle_core::{DType, Result, Tensor, bail};

use super::Kernels;
use crate::model::operations::{First, Turn};
use crate::tensors::machine::{Arg, Launch};

/// Rows of a block of `flash.cu`: ROWS there.
const ROWS: usize = 64;

/// Attention's intermediate results.
pub enum Attention {
    /// Weights, `[B, K, H / K T, T]`, and their sums, `[B H T]`, f32.
    Weights(Tensor, Tensor),
    /// Sums of the weights, and what these are measured from: `[2, B H T]`, f32.
    Sums(Tensor),
}

impl Kernels {
    /// Computes causal attention from queries `[B, H, T, E]`, keys and values, `[B, K, T, E]` each. Returns the
    /// outputs of the heads, side by side, `[B, T, H E]`.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Attention, Tensor)> {
        let ((b, h, t, e), k_heads) = (q.dims4()?, k.dim(1)?);
        if !t.is_multiple_of(8) {
            bail!("kernels attend to tokens in multiples of 8, and here are {t}");
        }
        if self.kind.flash() {
            let mixed = self.fresh(&[b, t, h * e])?;
            let sums = self.machine.fresh(&[2, b * h * t], DType::F32)?;
            self.flash("flash", [q, k, v], &[], &[&mixed, &sums])?;
            return Ok((Attention::Sums(sums), mixed));
        }
        // Query heads that share a key head become additional rows of its queries. Scores become weights in place.
        let q = q.reshape((b, k_heads, h / k_heads * t, e))?;
        let weights = q.matmul(&k.t()?)?;
        let sums = self.softmax(&weights, t)?;
        let mixed = self.gather(&weights.matmul(v)?.reshape((b, h, t, e))?, None, Some(&sums))?;
        Ok((Attention::Weights(weights, sums), mixed))
    }

    /// Returns the gradients of queries, keys and values, from that of the heads' outputs, `mixed`.
    pub(super) fn attend_back(
        &self,
        [q, k, v]: [&Tensor; 3],
        (attention, mixed): (&Attention, &Tensor),
        slope: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let ((b, h, t, e), k_heads) = (q.dims4()?, k.dim(1)?);
        let (weights, sums) = match attention {
            Attention::Weights(weights, sums) => (weights, sums),
            Attention::Sums(sums) => {
                let (slopes, deltas) = self.flash_slopes(q, mixed, sums, slope)?;
                let bases = sums.get(1)?;
                let [dq, dk, dv] = [self.fresh(q.dims())?, self.fresh(k.dims())?, self.fresh(v.dims())?];
                let more = [&slopes, &bases, &deltas];
                self.flash("flash_keys", [q, k, v], &more, &[&dk, &dv])?;
                self.flash("flash_queries", [q, k, v], &more, &[&dq])?;
                return Ok([dq, dk, dv]);
            }
        };
        let shared = (b, k_heads, h / k_heads * t, e);
        let turn = Turn { heads: h, first: First::Nothing, rope: None };
        let slope = self.spread(slope, turn, Some(sums))?.reshape(shared)?;
        let dv = weights.t()?.matmul(&slope)?;
        let dscores = slope.matmul(&v.t()?)?;
        self.softmax_back(weights, sums, &dscores, t)?;
        let dq = dscores.matmul(k)?.reshape((b, h, t, e))?;
        Ok([dq, dscores.t()?.matmul(&q.reshape(shared)?)?, dv])
    }

    /// Launches a kernel of `flash.cu` that goes through sequences in tiles: from queries, keys, values and
    /// `more` to `made`.
    fn flash(
        &self,
        kernel: &'static str,
        [q, k, v]: [&Tensor; 3],
        more: &[&Tensor],
        made: &[&Tensor],
    ) -> Result<()> {
        let (b, h, t, _) = q.dims4()?;
        let heads = if kernel == "flash_keys" { k.dim(1)? } else { h };
        let read = [&[q, k, v], more].concat();
        let read = read.into_iter().map(|tensor| self.machine.lend(tensor)).collect::<Result<Vec<_>>>()?;
        let (blocks, shared) = ([heads, b, t.div_ceil(ROWS)], self.kind.flash_shared(kernel));
        self.machine.rework(made, &mut |made| {
            let mut args: Vec<Arg> = read.iter().chain(made).map(Arg::from).collect();
            args.push(t.into());
            self.machine.launch(Launch { kernel, blocks, threads: super::THREADS, shared, args: &args })
        })
    }

    /// From the gradient of the heads' outputs, side by side: divided by the sums of the weights, with heads by
    /// themselves, `[B, H, T, E]`; and `[B H T]`, f32, from which all slopes of a query's weights are taken.
    fn flash_slopes(
        &self,
        q: &Tensor,
        mixed: &Tensor,
        sums: &Tensor,
        slope: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let (b, h, t, _) = q.dims4()?;
        let slopes = self.fresh(q.dims())?;
        let deltas = self.machine.fresh(&[b * h * t], DType::F32)?;
        let read = self.lend([slope, mixed, sums])?;
        self.machine.rework(&[&slopes, &deltas], &mut |made| {
            let mut args: Vec<Arg> = read.iter().chain(made).map(Arg::from).collect();
            args.extend([b * t, t].map(Arg::from));
            self.launch("flash_slopes", (b * t * h).div_ceil(super::WARPS), super::THREADS, &args)
        })?;
        Ok((slopes, deltas))
    }
}
