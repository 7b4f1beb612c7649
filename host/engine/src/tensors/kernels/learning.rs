//! The head's way from logits to thoughts and back, and the optimizer's step, by kernels of ours: one launch
//! each.

use candle_core::{DType, Result, Tensor, Var};

use super::{Kernels, threads};
use crate::tensors::batch::Batch;
use crate::tensors::learning::{Learning, Rates, Trained};
use crate::tensors::machine::{Arg, Launch};
use crate::tensors::taped::taped;

/// Numbers of which `squares` makes a part.
const SQUARES: usize = 1 << 15;

impl Learning for Kernels {
    /// So that every row of scores begins where eight numbers are read at once, and cuBLAS is at its best.
    fn even(&self) -> usize {
        8
    }

    /// Nothing of them lives but themselves: half a GiB in bfloat16.
    fn logits(&self) -> usize {
        1 << 28
    }

    /// Backward each row takes what is its own, or a row of zeros. candle's own backward pass goes over rows
    /// one after the other.
    fn answers(&self, x_btd: &Tensor, batch: &Batch) -> Result<Tensor> {
        let (dims, inverse) = (x_btd.dims3()?, batch.back.inverse.clone());
        let made = x_btd.detach().flatten(0, 1)?.index_select(&batch.places, 0)?;
        taped("answers", made, [x_btd], move |slope| {
            let nothing = Tensor::zeros((1, dims.2), slope.dtype(), slope.device())?;
            let rows = Tensor::cat(&[&nothing, slope], 0)?.index_select(&inverse, 0)?;
            Ok([rows.reshape(dims)?])
        })
    }

    /// A block for each token that occurs.
    fn embedded(&self, sum: Tensor, slopes: &Tensor, batch: &Batch) -> Result<Tensor> {
        let (width, back) = (sum.dim(1)?, &batch.back);
        let count = back.tokens.elem_count();
        let rooms = self.lend([&slopes.contiguous()?, &back.tokens, &back.firsts, &back.places])?;
        self.machine.rework(&[&sum], &mut |made| {
            let mut args: Vec<Arg> = rooms.iter().chain(made).map(Arg::from).collect();
            args.push(width.into());
            self.launch("embed_back", count, threads(width), &args)
        })?;
        Ok(sum)
    }

    fn think(&self, logits: &Tensor, targets: &Tensor, temperature: f32) -> Result<Tensor> {
        let (rows, count) = logits.dims2()?;
        let thoughts = self.machine.fresh(&[rows, 3], DType::F32)?;
        let [logits, targets] = self.lend([logits, targets])?;
        self.machine.rework(&[&thoughts], &mut |made| {
            let rooms = [&logits, &targets, &made[0]].map(Arg::from);
            let args = [&rooms[..], &[count.into(), temperature.recip().into()]].concat();
            self.launch("think", rows, count.div_ceil(8).next_multiple_of(32).min(512), &args)
        })?;
        Ok(thoughts)
    }

    fn slopes(
        &self,
        logits: Tensor,
        targets: &Tensor,
        thoughts: &Tensor,
        dlog_probs: &Tensor,
        temperature: f32,
    ) -> Result<Tensor> {
        let (rows, count) = logits.dims2()?;
        let rooms = self.lend([targets, thoughts, dlog_probs])?;
        self.machine.rework(&[&logits], &mut |made| {
            let mut args: Vec<Arg> = made.iter().chain(&rooms).map(Arg::from).collect();
            args.extend([Arg::from(count), Arg::from(temperature.recip())]);
            let blocks = [rows, count.div_ceil(8 * 256).min(8), 1];
            self.machine.launch(Launch { kernel: "slopes", blocks, threads: 256, shared: 0, args: &args })
        })?;
        Ok(logits)
    }

    /// Parts of a fixed size each, on the host in one go.
    fn squares(&self, gradients: &[&Tensor]) -> Result<f64> {
        let counts = gradients.iter().map(|gradient| gradient.elem_count().div_ceil(SQUARES));
        if gradients.is_empty() {
            return Ok(0.0);
        }
        let parts = self.machine.fresh(&[counts.clone().sum()], DType::F32)?;
        let rooms = gradients.iter().map(|g| self.machine.lend(g)).collect::<Result<Vec<_>>>()?;
        self.machine.rework(&[&parts], &mut |made| {
            let mut at = made[0].at;
            for ((room, gradient), blocks) in rooms.iter().zip(gradients).zip(counts.clone()) {
                let args = [room.into(), Arg::Address(at), gradient.elem_count().into(), SQUARES.into()];
                self.launch("squares", blocks, 256, &args)?;
                at += 4 * blocks as u64;
            }
            Ok(())
        })?;
        Ok(parts.to_vec1::<f32>()?.iter().map(|part| f64::from(*part)).sum())
    }

    fn adamw(
        &self,
        weight: Trained<'_>,
        (mean, square): (Tensor, Tensor),
        r: &Rates,
    ) -> Result<(Tensor, Tensor)> {
        let count = weight.master.elem_count();
        let gradient = weight.gradient.map(|gradient| self.machine.lend(gradient)).transpose()?;
        let mut tensors = vec![weight.master.as_tensor(), &mean, &square];
        tensors.extend(weight.copy.map(Var::as_tensor));
        let same = weight.copy.is_some_and(|copy| copy.dtype() == DType::F32);
        self.machine.rework(&tensors, &mut |made| {
            let copy = Arg::from(made.get(3));
            let nowhere = Arg::Address(0);
            let (rounded, same) = if same { (nowhere, copy) } else { (copy, nowhere) };
            let rooms = [
                (&made[0]).into(),
                (&made[1]).into(),
                (&made[2]).into(),
                gradient.as_ref().into(),
                rounded,
                same,
            ];
            let (beta1, beta2) = r.betas;
            let numbers = [r.cut, beta1, 1.0 - beta1, beta2, 1.0 - beta2, r.root, r.epsilon, r.keep, r.rate];
            let args = [&rooms[..], &[count.into()], &numbers.map(Arg::from)].concat();
            self.launch("adamw", count.div_ceil(256), 256, &args)
        })?;
        Ok((mean, square))
    }
}
