//! Scoring and learning by this crate's kernels. This file has the launches of a block, forward
//! and backward: numbers are stored in the model's format and computed in float32. `block.rs`
//! combines them; `learning.rs` has the steps after the blocks.
//!
//! Shapes: B sequences, T tokens, N heads, H query heads, K key and value heads, E head, R rows, W width.

mod attention;
mod block;
mod learning;

use std::sync::Arc;

use candle_core::{D, DType, Error, Result, Tensor, Var, bail};

use super::adapted::Adapter;
use super::gradients::Gradients;
use super::machine::{Arg, DeviceBuffer, Factor, KernelConfig, Launch, Machine};
use crate::model::operations::{First, RopeTable, Turn};

/// Rows per partial sum of the weights' gradient in `norm_back`, and of the sums in `columns`.
const NORM_ROWS: usize = 16;
const COLUMN_ROWS: usize = 256;

/// Threads of a block in which each warp works on its own row, head or numbers.
const THREADS: usize = 128;
const WARPS: usize = THREADS / 32;

/// Kernels on a machine, for one kind of model.
#[derive(Clone)]
pub struct Kernels {
    machine: Arc<dyn Machine>,
    kind: KernelConfig,
}

impl Kernels {
    /// Uses a machine whose kernels are compiled for this kind of model.
    pub fn new(machine: Arc<dyn Machine>, kind: KernelConfig) -> Self {
        Self { machine, kind }
    }

    /// Returns an unwritten tensor in the model's number format.
    fn fresh(&self, dims: &[usize]) -> Result<Tensor> {
        self.machine.fresh(dims, if self.kind.bf16 { DType::BF16 } else { DType::F32 })
    }

    fn lend<const N: usize>(&self, tensors: [&Tensor; N]) -> Result<[DeviceBuffer; N]> {
        let buffers =
            tensors.into_iter().map(|tensor| self.machine.lend(tensor)).collect::<Result<Vec<_>>>()?;
        buffers.try_into().map_err(|_| Error::Msg("as many buffers as tensors".to_owned()))
    }

    fn launch(&self, kernel: &'static str, blocks: usize, threads: usize, args: &[Arg]) -> Result<()> {
        self.machine.launch(Launch { kernel, blocks: [blocks, 1, 1], threads, shared: 0, args })
    }

    /// Computes a product with a matrix over the last dimension, `x · wᵀ`.
    fn product(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let mut dims = x.dims().to_vec();
        let width = dims.pop().unwrap_or(1);
        dims.push(weight.dim(0)?);
        let made = self.fresh(&dims)?;
        let (flat, rows) = (x.reshape(((), width))?, made.reshape(((), weight.dim(0)?))?);
        self.machine.multiply(&rows, Factor::of(&flat), Factor::across(weight), false)?;
        Ok(made)
    }

    /// Computes the gradient of a product's input: `slope · w`. Adds it to `sum`, if given, and
    /// returns that.
    fn unproduct(&self, slope: &Tensor, weight: &Tensor, sum: Option<Tensor>) -> Result<Tensor> {
        let (outer, inner) = weight.dims2()?;
        let mut dims = slope.dims().to_vec();
        dims.pop();
        dims.push(inner);
        let (add, made) = (sum.is_some(), sum.map_or_else(|| self.fresh(&dims), Ok)?);
        let (flat, rows) = (slope.reshape(((), outer))?, made.reshape(((), inner))?);
        self.machine.multiply(&rows, Factor::of(&flat), Factor::of(weight), add)?;
        Ok(made)
    }

    /// Computes the gradient of a product's matrix, f32: `slopeᵀ · x`, added to `sum` if given.
    fn weighed(&self, slope: &Tensor, x: &Tensor, sum: Option<Tensor>) -> Result<Tensor> {
        let (outer, inner) = (slope.dim(D::Minus1)?, x.dim(D::Minus1)?);
        let (add, made) =
            (sum.is_some(), sum.map_or_else(|| self.machine.fresh(&[outer, inner], DType::F32), Ok)?);
        let (slope, x) = (slope.reshape(((), outer))?, x.reshape(((), inner))?);
        self.machine.multiply(&made, Factor::across(&slope), Factor::of(&x), add)?;
        Ok(made)
    }

    /// Computes the gradients of a matrix's adapter, `W + s B A`, from that of the output, `slope`:
    /// adds `s slopeᵀ (x Aᵀ)` to dB and `s (slope B)ᵀ x` to dA. dW is never computed.
    fn adapted(
        &self,
        gradients: &mut Gradients,
        adapter: &Adapter,
        slope: &Tensor,
        x: &Tensor,
    ) -> Result<()> {
        let kind = if self.kind.bf16 { DType::BF16 } else { DType::F32 };
        let scaled =
            |matrix: &Var| (matrix.as_detached_tensor() * adapter.scale)?.to_dtype(kind)?.contiguous();
        let inner = self.product(x, &scaled(&adapter.a)?)?;
        gradients.renew(&adapter.names[1], |sum| self.weighed(slope, &inner, sum))?;
        let dinner = self.unproduct(slope, &scaled(&adapter.b)?, None)?;
        gradients.renew(&adapter.names[0], |sum| self.weighed(&dinner, x, sum))
    }

    /// Norms the stream. Returns the stream and the normed stream. With `part`, adds it to the
    /// stream first.
    fn norm(
        &self,
        x: &Tensor,
        part: Option<&Tensor>,
        (weight, epsilon): (&Tensor, f64),
    ) -> Result<[Tensor; 2]> {
        let (normed, width) = (self.fresh(x.dims())?, weight.elem_count());
        let sum = part.map_or_else(|| Ok(x.clone()), |_| self.fresh(x.dims()))?;
        let [from, by] = self.lend([x, weight])?;
        let more = part.map(|part| self.machine.lend(part)).transpose()?;
        let mut made = vec![&normed];
        made.extend(part.map(|_| &sum));
        self.machine.rework(&made, &mut |made| {
            let buffers =
                [(&from).into(), more.as_ref().into(), made.get(1).into(), (&by).into(), (&made[0]).into()];
            let args = [&buffers[..], &[width.into(), epsilon.into()]].concat();
            self.launch("rms_norm", x.elem_count() / width, threads(width), &args)
        })?;
        Ok([sum, normed])
    }

    /// Adds a part to the stream.
    fn add(&self, x: &Tensor, part: &Tensor) -> Result<Tensor> {
        let (made, eights) = (self.fresh(x.dims())?, x.elem_count() / 8);
        let buffers = self.lend([x, part])?;
        self.machine.rework(&[&made], &mut |made| {
            let mut args: Vec<Arg> = buffers.iter().chain(made).map(Arg::from).collect();
            args.push(eights.into());
            self.launch("add", eights.div_ceil(THREADS), THREADS, &args)
        })?;
        Ok(made)
    }

    /// Returns the gradients of a norm's input and weights, from that of its output. `past`, the
    /// gradient that bypasses the norm, is added to the first.
    fn norm_back(
        &self,
        x: &Tensor,
        (weight, epsilon): (&Tensor, f64),
        slope: &Tensor,
        past: Option<&Tensor>,
    ) -> Result<[Tensor; 2]> {
        let width = weight.elem_count();
        let rows = x.elem_count() / width;
        let parts = rows.div_ceil(NORM_ROWS);
        let (dx, sums) = (self.fresh(x.dims())?, self.machine.fresh(&[parts, width], DType::F32)?);
        let past = past.map(|past| self.machine.lend(past)).transpose()?;
        let [x, weight, slope] = self.lend([x, weight, slope])?;
        self.machine.rework(&[&dx, &sums], &mut |made| {
            let buffers = [Some(&x), Some(&weight), Some(&slope), past.as_ref(), made.first(), made.get(1)];
            let counts = [rows, width, NORM_ROWS].map(Arg::from);
            let args = [&buffers.map(Arg::from)[..], &counts[..], &[epsilon.into()]].concat();
            let (blocks, threads) = ([parts, 1, 1], threads(width));
            self.machine.launch(Launch {
                kernel: "norm_back",
                blocks,
                threads,
                shared: 8 * NORM_ROWS,
                args: &args,
            })
        })?;
        Ok([dx, self.totals(&sums)?])
    }

    /// Computes the product inside the feed-forward part, from gate and up.
    fn gated(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        let (made, width) = (self.fresh(gate.dims())?, gate.dim(D::Minus1)?);
        let blocks = [gate.elem_count() / width, width.div_ceil(8 * THREADS), 1];
        let buffers = self.lend([gate, up])?;
        self.machine.rework(&[&made], &mut |made| {
            let mut args: Vec<Arg> = buffers.iter().chain(made).map(Arg::from).collect();
            args.extend([width, width].map(Arg::from));
            self.machine.launch(Launch { kernel: "swiglu", blocks, threads: THREADS, shared: 0, args: &args })
        })?;
        Ok(made)
    }

    /// Returns the gradients of gate and up.
    fn gated_back(&self, gate: &Tensor, up: &Tensor, slope: &Tensor) -> Result<[Tensor; 2]> {
        let (made, width) = ([self.fresh(gate.dims())?, self.fresh(gate.dims())?], gate.dim(D::Minus1)?);
        let blocks = [gate.elem_count() / width, width.div_ceil(8 * THREADS), 1];
        let buffers = self.lend([gate, up, slope])?;
        self.machine.rework(&[&made[0], &made[1]], &mut |made| {
            let mut args: Vec<Arg> = buffers.iter().chain(made).map(Arg::from).collect();
            args.push(width.into());
            let (kernel, threads) = ("swiglu_back", THREADS);
            self.machine.launch(Launch { kernel, blocks, threads, shared: 0, args: &args })
        })?;
        Ok(made)
    }

    /// Sums columns: `[W]`, f32, from `[R, W]` in the model's number format.
    fn columns(&self, x: &Tensor, width: usize) -> Result<Tensor> {
        let rows = x.elem_count() / width;
        let parts = rows.div_ceil(COLUMN_ROWS);
        let sums = self.machine.fresh(&[parts, width], DType::F32)?;
        let x = self.machine.lend(x)?;
        self.machine.rework(&[&sums], &mut |made| {
            let counts = [rows, width, COLUMN_ROWS].map(Arg::from);
            let args = [&[Arg::from(&x), Arg::from(&made[0])][..], &counts[..]].concat();
            let blocks = [width.div_ceil(32), parts, 1];
            self.machine.launch(Launch { kernel: "columns", blocks, threads: 256, shared: 0, args: &args })
        })?;
        self.totals(&sums)
    }

    /// Sums columns: `[W]` from `[R, W]`, f32.
    fn totals(&self, parts: &Tensor) -> Result<Tensor> {
        let (count, width) = parts.dims2()?;
        let sums = self.machine.fresh(&[width], DType::F32)?;
        let parts = self.machine.lend(parts)?;
        self.machine.rework(&[&sums], &mut |made| {
            let args = [(&parts).into(), (&made[0]).into(), count.into(), width.into()];
            self.launch("totals", width.div_ceil(32), 256, &args)
        })?;
        Ok(sums)
    }

    /// Splits heads and rotates them: `[B, N, T, E]` from `[B, T, N E]`. Divides by `by`,
    /// `[B, N, T]`, first if given.
    fn spread(&self, x: &Tensor, turn: Turn<'_>, by: Option<&Tensor>) -> Result<Tensor> {
        let ((b, t, _), heads) = (x.dims3()?, turn.heads);
        let made = self.fresh(&[b, heads, t, self.kind.head])?;
        let (bias, norm, epsilon) = match turn.first {
            First::Nothing => (None, None, 0.0),
            First::Bias(bias) => (Some(self.machine.lend(bias)?), None, 0.0),
            First::Norm(weight, epsilon) => (None, Some(self.machine.lend(weight)?), epsilon),
        };
        let (x, lent) = (self.machine.lend(x)?, self.rope(turn.rope)?);
        let by = by.map(|by| self.machine.lend(by)).transpose()?;
        let [bias, norm, cos, sin, by] =
            [&bias, &norm, &lent[0], &lent[1], &by].map(|buffer| Arg::from(buffer.as_ref()));
        self.machine.rework(&[&made], &mut |made| {
            let buffers = [(&x).into(), bias, norm, cos, sin, by, (&made[0]).into()];
            let counts = [b * t, t, heads].map(Arg::from);
            let args = [&buffers[..], &counts[..], &[epsilon.into()]].concat();
            self.launch("spread", (b * t * heads).div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(made)
    }

    /// The inverse of `spread`: `[B, T, N E]` from `[B, N, T, E]`, rotated by the negative angle.
    fn gather(&self, x: &Tensor, rope: Option<&RopeTable>, by: Option<&Tensor>) -> Result<Tensor> {
        let (b, heads, t, e) = x.dims4()?;
        let made = self.fresh(&[b, t, heads * e])?;
        let (x, lent) = (self.machine.lend(x)?, self.rope(rope)?);
        let by = by.map(|by| self.machine.lend(by)).transpose()?;
        let [cos, sin, by] = [&lent[0], &lent[1], &by].map(|buffer| Arg::from(buffer.as_ref()));
        self.machine.rework(&[&made], &mut |made| {
            let buffers = [(&x).into(), cos, sin, by, (&made[0]).into()];
            let args = [&buffers[..], &[b * t, t, heads].map(Arg::from)].concat();
            self.launch("gather", (b * t * heads).div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(made)
    }

    /// Returns cosines and sines, the same for all sequences.
    fn rope(&self, rope: Option<&RopeTable>) -> Result<[Option<DeviceBuffer>; 2]> {
        let Some((cos, sin)) = rope else { return Ok([None, None]) };
        if cos.dim(0)? != 1 {
            bail!("kernels turn all sequences alike");
        }
        Ok(self.lend([cos, sin])?.map(Some))
    }

    /// Turns scores `[.., T]` into weights in place. Returns their sums, f32.
    fn softmax(&self, scores: &Tensor, tokens: usize) -> Result<Tensor> {
        let rows = scores.elem_count() / tokens;
        let sums = self.machine.fresh(&[rows], DType::F32)?;
        self.machine.rework(&[scores, &sums], &mut |made| {
            let args = [(&made[0]).into(), (&made[1]).into(), rows.into(), tokens.into()];
            self.launch("softmax", rows.div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(sums)
    }

    /// Turns gradients of weights into those of scores, in place.
    fn softmax_back(&self, weights: &Tensor, sums: &Tensor, slopes: &Tensor, tokens: usize) -> Result<()> {
        let rows = slopes.elem_count() / tokens;
        let [weights, sums] = self.lend([weights, sums])?;
        self.machine.rework(&[slopes], &mut |made| {
            let buffers = [&weights, &sums, &made[0]].map(Arg::from);
            let args = [&buffers[..], &[rows.into(), tokens.into()]].concat();
            self.launch("softmax_back", rows.div_ceil(WARPS), THREADS, &args)
        })
    }
}

/// Returns the threads for a row of numbers, with eight numbers per thread at a time.
pub fn threads(width: usize) -> usize {
    width.div_ceil(8).next_multiple_of(32).min(256)
}
