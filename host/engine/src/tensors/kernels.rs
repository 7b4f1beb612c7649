//! A block's operations by kernels of ours: beside its products each has one or two launches forward
//! and one to three backward, numbers in their own kind in memory and float32 in between. Products are candle's,
//! which are cuBLAS's.
//!
//! Shapes: B sequences, T tokens, N heads, H of them of queries, K of keys and values, E head, R rows, W a
//! width.

mod learning;

use std::sync::Arc;

use candle_core::{D, DType, Device, Error, Result, Tensor, bail};

use super::machine::{Arg, Kind, Launch, Machine, Room};
use super::taped::taped;
use crate::model::operations::{Candle, First, Operations, Rotations, Turn};

/// Rows of which `norm_back` makes a part of the weights' gradient, and rows of which `columns` makes one.
const NORM_ROWS: usize = 16;
const COLUMN_ROWS: usize = 256;

/// Threads of a block where a warp has a row, a head or some numbers by itself.
const THREADS: usize = 128;
const WARPS: usize = THREADS / 32;

/// Kernels on a machine, for one kind of model.
#[derive(Clone)]
pub struct Kernels {
    machine: Arc<dyn Machine>,
    kind: Kind,
}

impl Kernels {
    /// On a machine whose kernels are compiled for this kind of model.
    pub fn new(machine: Arc<dyn Machine>, kind: Kind) -> Self {
        Self { machine, kind }
    }

    /// A tensor in the model's kind of number, yet to be written.
    fn fresh(&self, dims: &[usize]) -> Result<Tensor> {
        self.machine.fresh(dims, if self.kind.bf16 { DType::BF16 } else { DType::F32 })
    }

    fn lend<const N: usize>(&self, tensors: [&Tensor; N]) -> Result<[Room; N]> {
        let rooms =
            tensors.into_iter().map(|tensor| self.machine.lend(tensor)).collect::<Result<Vec<_>>>()?;
        rooms.try_into().map_err(|_| Error::Msg("as many rooms as tensors".to_owned()))
    }

    fn launch(&self, kernel: &'static str, blocks: usize, threads: usize, args: &[Arg]) -> Result<()> {
        self.machine.launch(Launch { kernel, blocks: [blocks, 1, 1], threads, shared: 0, args })
    }

    /// Gradients of what was normed and of the weights, from that of what came out.
    fn norm_back(&self, x: &Tensor, weight: &Tensor, slope: &Tensor, epsilon: f64) -> Result<[Tensor; 2]> {
        let width = weight.elem_count();
        let rows = x.elem_count() / width;
        let parts = rows.div_ceil(NORM_ROWS);
        let (dx, sums) = (self.fresh(x.dims())?, self.machine.fresh(&[parts, width], DType::F32)?);
        let [x, weight, slope] = self.lend([x, weight, slope])?;
        self.machine.rework(&[&dx, &sums], &mut |made| {
            let rooms = [&x, &weight, &slope, &made[0], &made[1]].map(Arg::from);
            let counts = [rows, width, NORM_ROWS].map(Arg::from);
            let args = [&rooms[..], &counts[..], &[epsilon.into()]].concat();
            let (blocks, threads) = ([parts, 1, 1], threads(width));
            self.machine.launch(Launch {
                kernel: "norm_back",
                blocks,
                threads,
                shared: 4 * width,
                args: &args,
            })
        })?;
        Ok([dx, self.totals(&sums)?])
    }

    /// Sums of columns: `[W]`, f32, from `[R, W]` in the model's kind of number.
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

    /// Sums of columns: `[W]` from `[R, W]`, f32.
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

    /// Heads by themselves, turned, `[B, N, T, E]`, from `[B, T, N E]`, divided by `[B, N, T]` first if that
    /// is given.
    fn spread(&self, x: &Tensor, turn: Turn<'_>, by: Option<&Tensor>) -> Result<Tensor> {
        let ((b, t, _), heads) = (x.dims3()?, turn.heads);
        let made = self.fresh(&[b, heads, t, self.kind.head])?;
        let (bias, norm, epsilon) = match turn.first {
            First::Nothing => (None, None, 0.0),
            First::Bias(bias) => (Some(self.machine.lend(bias)?), None, 0.0),
            First::Norm(weight, epsilon) => (None, Some(self.machine.lend(weight)?), epsilon),
        };
        let (x, (lent, apart)) = (self.machine.lend(x)?, self.rotations(turn.rotations)?);
        let by = by.map(|by| self.machine.lend(by)).transpose()?;
        let [bias, norm, cos, sin, by] =
            [&bias, &norm, &lent[0], &lent[1], &by].map(|room| Arg::from(room.as_ref()));
        self.machine.rework(&[&made], &mut |made| {
            let rooms = [(&x).into(), bias, norm, cos, sin, by, (&made[0]).into()];
            let counts = [b * t, t, heads, apart].map(Arg::from);
            let args = [&rooms[..], &counts[..], &[epsilon.into()]].concat();
            self.launch("spread", (b * t * heads).div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(made)
    }

    /// The way back, `[B, T, N E]` from `[B, N, T, E]`, rotated by the negative angle.
    fn gather(&self, x: &Tensor, rotations: Option<&Rotations>, by: Option<&Tensor>) -> Result<Tensor> {
        let (b, heads, t, e) = x.dims4()?;
        let made = self.fresh(&[b, t, heads * e])?;
        let (x, (lent, apart)) = (self.machine.lend(x)?, self.rotations(rotations)?);
        let by = by.map(|by| self.machine.lend(by)).transpose()?;
        let [cos, sin, by] = [&lent[0], &lent[1], &by].map(|room| Arg::from(room.as_ref()));
        self.machine.rework(&[&made], &mut |made| {
            let rooms = [(&x).into(), cos, sin, by, (&made[0]).into()];
            let args = [&rooms[..], &[b * t, t, heads, apart].map(Arg::from)].concat();
            self.launch("gather", (b * t * heads).div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(made)
    }

    /// Cosines and sines, and how far apart those of two sequences are: 0 where they are the same.
    fn rotations(&self, rotations: Option<&Rotations>) -> Result<([Option<Room>; 2], usize)> {
        let Some((cos, sin)) = rotations else { return Ok(([None, None], 0)) };
        let apart = if cos.dim(0)? == 1 { 0 } else { cos.elem_count() / cos.dim(0)? };
        Ok((self.lend([cos, sin])?.map(Some), apart))
    }

    /// Scores `[.., T]` become weights in their place. Gives their sums, f32.
    fn softmax(&self, scores: &Tensor, tokens: usize) -> Result<Tensor> {
        let rows = scores.elem_count() / tokens;
        let sums = self.machine.fresh(&[rows], DType::F32)?;
        self.machine.rework(&[scores, &sums], &mut |made| {
            let args = [(&made[0]).into(), (&made[1]).into(), rows.into(), tokens.into()];
            self.launch("softmax", rows.div_ceil(WARPS), THREADS, &args)
        })?;
        Ok(sums)
    }

    /// Gradients of weights become those of scores in their place.
    fn softmax_back(&self, weights: &Tensor, sums: &Tensor, slopes: &Tensor, tokens: usize) -> Result<()> {
        let rows = slopes.elem_count() / tokens;
        let [weights, sums] = self.lend([weights, sums])?;
        self.machine.rework(&[slopes], &mut |made| {
            let rooms = [&weights, &sums, &made[0]].map(Arg::from);
            let args = [&rooms[..], &[rows.into(), tokens.into()]].concat();
            self.launch("softmax_back", rows.div_ceil(WARPS), THREADS, &args)
        })
    }
}

impl Operations for Kernels {
    fn linear(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let made = Candle.linear(&x.detach(), &weight.detach())?;
        let (x_, weight_) = (x.detach(), weight.detach());
        taped("linear", made, [x, weight], move |slope| product_back(&x_, &weight_, slope))
    }

    fn norm(&self, x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
        let x = &x.contiguous()?;
        let (made, width) = (self.fresh(x.dims())?, weight.elem_count());
        let [from, by] = self.lend([x, weight])?;
        self.machine.rework(&[&made], &mut |made| {
            let rooms = [(&from).into(), Arg::Address(0), (&by).into(), (&made[0]).into()];
            let args = [&rooms[..], &[width.into(), epsilon.into()]].concat();
            self.launch("rms_norm", x.elem_count() / width, threads(width), &args)
        })?;
        let (own, x_, weight_) = (self.clone(), x.detach(), weight.detach());
        taped("norm", made, [x, weight], move |slope| own.norm_back(&x_, &weight_, slope, epsilon))
    }

    fn project(&self, x: &Tensor, weight: &Tensor, turn: Turn<'_>) -> Result<Tensor> {
        let (x_, weight_, rotations) = (x.detach(), weight.detach(), turn.rotations.cloned());
        let y = Candle.linear(&x_, &weight_)?;
        let made = self.spread(&y, turn, None)?;
        let own = self.clone();
        let back = move |slope: &Tensor| own.gather(slope, rotations.as_ref(), None);
        let own = self.clone();
        match turn.first {
            First::Nothing => {
                taped("project", made, [x, weight], move |slope| product_back(&x_, &weight_, &back(slope)?))
            }
            First::Bias(bias) => taped("project", made, [x, weight, bias], move |slope| {
                let dy = back(slope)?;
                let [dx, dweight] = product_back(&x_, &weight_, &dy)?;
                Ok([dx, dweight, own.columns(&dy, dy.dim(2)?)?])
            }),
            First::Norm(norm, epsilon) => {
                let norm_ = norm.detach();
                taped("project", made, [x, weight, norm], move |slope| {
                    let [dy, dnorm] = own.norm_back(&y, &norm_, &back(slope)?, epsilon)?;
                    let [dx, dweight] = product_back(&x_, &weight_, &dy)?;
                    Ok([dx, dweight, dnorm])
                })
            }
        }
    }

    /// Nothing: the kernels know.
    fn ahead(&self, _: usize, device: &Device) -> Result<Tensor> {
        Tensor::zeros((), DType::F32, device)
    }

    /// Scores become weights in their place, and their gradients likewise; nothing else is kept of them. What
    /// values come to is divided by the sum of the weights when it is gathered.
    fn attend(&self, q_bhte: &Tensor, k_bkte: &Tensor, v_bkte: &Tensor, _: &Tensor) -> Result<Tensor> {
        let ((b, h, t, e), k_heads) = (q_bhte.dims4()?, k_bkte.dim(1)?);
        if !t.is_multiple_of(8) {
            bail!("kernels attend to tokens in multiples of 8, and here are {t}");
        }
        // Query heads that share a key head are more rows of its queries.
        let rows = h / k_heads * t;
        let shared = (b, k_heads, rows, e);
        let (q, k, v) = (q_bhte.detach().reshape(shared)?, k_bkte.detach(), v_bkte.detach());
        let weights = q.matmul(&k.t()?)?;
        let sums = self.softmax(&weights, t)?;
        let made = self.gather(&weights.matmul(&v)?.reshape((b, h, t, e))?, None, Some(&sums))?;
        let own = self.clone();
        taped("attend", made, [q_bhte, k_bkte, v_bkte], move |slope| {
            let turn = Turn { heads: h, first: First::Nothing, rotations: None };
            let slope = own.spread(slope, turn, Some(&sums))?.reshape(shared)?;
            let dv = weights.t()?.matmul(&slope)?;
            let dscores = slope.matmul(&v.t()?)?;
            own.softmax_back(&weights, &sums, &dscores, t)?;
            Ok([dscores.matmul(&k)?.reshape((b, h, t, e))?, dscores.t()?.matmul(&q)?, dv])
        })
    }

    fn gated(&self, x: &Tensor, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        let [x_, gate_, up_] = [x, gate, up].map(Tensor::detach);
        let (g, u) = (Candle.linear(&x_, &gate_)?, Candle.linear(&x_, &up_)?);
        let (made, width) = (self.fresh(g.dims())?, g.dim(D::Minus1)?);
        let blocks = [g.elem_count() / width, width.div_ceil(8 * THREADS), 1];
        let rooms = self.lend([&g, &u])?;
        self.machine.rework(&[&made], &mut |made| {
            let mut args: Vec<Arg> = rooms.iter().chain(made).map(Arg::from).collect();
            args.extend([width, width].map(Arg::from));
            self.machine.launch(Launch { kernel: "swiglu", blocks, threads: THREADS, shared: 0, args: &args })
        })?;
        let own = self.clone();
        taped("gated", made, [x, gate, up], move |slope| {
            let (dg, du) = (own.fresh(g.dims())?, own.fresh(g.dims())?);
            let rooms = own.lend([&g, &u, slope])?;
            own.machine.rework(&[&dg, &du], &mut |made| {
                let mut args: Vec<Arg> = rooms.iter().chain(made).map(Arg::from).collect();
                args.push(width.into());
                let (kernel, threads) = ("swiglu_back", THREADS);
                own.machine.launch(Launch { kernel, blocks, threads, shared: 0, args: &args })
            })?;
            let ([dx, dgate], [more, dup]) = (product_back(&x_, &gate_, &dg)?, product_back(&x_, &up_, &du)?);
            Ok([(dx + more)?, dgate, dup])
        })
    }
}

/// Backward through a product with a matrix, without what candle's own adds and turns around: gradients of
/// what was multiplied and of the matrix.
fn product_back(x: &Tensor, weight: &Tensor, slope: &Tensor) -> Result<[Tensor; 2]> {
    let (flat, rows) = (x.flatten_to(x.rank() - 2)?, slope.flatten_to(slope.rank() - 2)?);
    Ok([rows.matmul(weight)?.reshape(x.dims())?, rows.t()?.matmul(&flat)?])
}

/// Threads for a row of numbers, eight of them at a time each.
pub fn threads(width: usize) -> usize {
    width.div_ceil(8).next_multiple_of(32).min(256)
}
