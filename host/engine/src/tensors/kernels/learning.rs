//! From the head's logits to statistics and back, and the optimizer's step, by this crate's
//! kernels: one launch each.

use candle_core::{DType, Device, Result, Tensor, Var};

use super::{Kernels, threads};
use crate::model::{Checkpoint, Decoder, ModelResult};
use crate::tensors::batch::Batch;
use crate::tensors::gradients::Gradients;
use crate::tensors::learning::{Backward, BlockOutput, Learning, PassTokens, Rates, Slopes, Trained};
use crate::tensors::machine::{Arg, Launch};

/// Numbers per partial sum of `squares`: four for each thread, eight times.
const SQUARES: usize = 1 << 13;

/// The final norm's weights.
const NORM: &str = "model.norm.weight";

/// Rows of answers, kept for the backward pass.
struct Answers<'a> {
    kernels: &'a Kernels,
    batch: &'a Batch,
    dims: (usize, usize, usize),
    rows: Tensor,
    norm: Tensor,
    epsilon: f64,
}

impl Learning for Kernels {
    /// Aligns every row of scores for reads of eight numbers, which also suits cuBLAS best.
    fn even(&self) -> usize {
        8
    }

    /// No copies are held besides the logits: half a GiB in bfloat16.
    fn logits(&self) -> usize {
        1 << 28
    }

    /// Empty: the kernels are causal themselves.
    fn ahead(&self, _: usize, _: Option<usize>, device: &Device) -> Result<Tensor> {
        Tensor::zeros((), DType::F32, device)
    }

    fn block<'a>(
        &'a self,
        weights: &'a Checkpoint,
        layer: usize,
        x_btd: &Tensor,
        way: &PassTokens,
        keep: bool,
    ) -> ModelResult<BlockOutput<'a>> {
        self.pass(weights, layer, x_btd, way, keep)
    }

    fn answers<'a>(
        &'a self,
        weights: &'a Checkpoint,
        x_btd: &Tensor,
        batch: &'a Batch,
        keep: bool,
    ) -> ModelResult<(Tensor, Option<Box<dyn Backward + 'a>>)> {
        let (dims, epsilon) = (x_btd.dims3()?, weights.shape.epsilon);
        let norm = Decoder::frozen(weights).weight(NORM)?;
        let rows = x_btd.flatten(0, 1)?.index_select(&batch.places, 0)?;
        let [rows, normed] = self.norm(&rows, None, (&norm, epsilon))?;
        let answers = Answers { kernels: self, batch, dims, rows, norm, epsilon };
        Ok((normed, keep.then(|| Box::new(answers) as Box<dyn Backward + 'a>)))
    }

    fn headed(&self, sum: Option<Tensor>, slopes: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.weighed(slopes, x, sum)
    }

    /// Launches a block for each distinct token.
    fn embedded(&self, sum: Tensor, slopes: &Tensor, batch: &Batch) -> Result<Tensor> {
        let (width, back) = (sum.dim(1)?, &batch.back);
        let count = back.tokens.elem_count();
        let buffers = self.lend([&slopes.contiguous()?, &back.tokens, &back.firsts, &back.places])?;
        self.machine.rework(&[&sum], &mut |made| {
            let mut args: Vec<Arg> = buffers.iter().chain(made).map(Arg::from).collect();
            args.push(width.into());
            self.launch("embed_back", count, threads(width), &args)
        })?;
        Ok(sum)
    }

    fn logprob_entropy(&self, logits: &Tensor, targets: &Tensor, temperature: f32) -> Result<Tensor> {
        let (rows, count) = logits.dims2()?;
        let statistics = self.machine.fresh(&[rows, 3], DType::F32)?;
        let [logits, targets] = self.lend([logits, targets])?;
        self.machine.rework(&[&statistics], &mut |made| {
            let buffers = [&logits, &targets, &made[0]].map(Arg::from);
            let args = [&buffers[..], &[count.into(), temperature.recip().into()]].concat();
            self.launch("logprob_entropy", rows, count.div_ceil(8).next_multiple_of(32).min(512), &args)
        })?;
        Ok(statistics)
    }

    fn dlogits(
        &self,
        logits: Tensor,
        targets: &Tensor,
        statistics: &Tensor,
        slopes: &Slopes,
        temperature: f32,
    ) -> Result<Tensor> {
        let (rows, count) = logits.dims2()?;
        let buffers = self.lend([targets, statistics, &slopes.log_probs])?;
        let dentropies = slopes.entropies.as_ref().map(|slopes| self.machine.lend(slopes)).transpose()?;
        self.machine.rework(&[&logits], &mut |made| {
            let mut args: Vec<Arg> = made.iter().chain(&buffers).map(Arg::from).collect();
            args.extend([dentropies.as_ref().into(), Arg::from(count), Arg::from(temperature.recip())]);
            let blocks = [rows, count.div_ceil(8 * 256).min(8), 1];
            self.machine.launch(Launch { kernel: "dlogits", blocks, threads: 256, shared: 0, args: &args })
        })?;
        Ok(logits)
    }

    /// Partial sums of a fixed size, copied to the host at once.
    fn squares(&self, gradients: &[&Tensor]) -> Result<f64> {
        let counts = gradients.iter().map(|gradient| gradient.elem_count().div_ceil(SQUARES));
        if gradients.is_empty() {
            return Ok(0.0);
        }
        let parts = self.machine.fresh(&[counts.clone().sum()], DType::F32)?;
        let buffers = gradients.iter().map(|g| self.machine.lend(g)).collect::<Result<Vec<_>>>()?;
        self.machine.rework(&[&parts], &mut |made| {
            let mut at = made[0].at;
            for ((buffer, gradient), blocks) in buffers.iter().zip(gradients).zip(counts.clone()) {
                let args = [buffer.into(), Arg::Address(at), gradient.elem_count().into(), SQUARES.into()];
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
            let buffers = [
                (&made[0]).into(),
                (&made[1]).into(),
                (&made[2]).into(),
                gradient.as_ref().into(),
                rounded,
                same,
            ];
            let (beta1, beta2) = r.betas;
            let numbers = [r.cut, beta1, 1.0 - beta1, beta2, 1.0 - beta2, r.root, r.epsilon, r.keep, r.rate];
            let args = [&buffers[..], &[count.into()], &numbers.map(Arg::from)].concat();
            self.launch("adamw", count.div_ceil(256), 256, &args)
        })?;
        Ok((mean, square))
    }
}

impl Backward for Answers<'_> {
    /// Each position of the stream gets its own row, or zeros.
    fn back(self: Box<Self>, slope: &Tensor, gradients: &mut Gradients) -> ModelResult<Tensor> {
        let [slope, dnorm] = self.kernels.norm_back(&self.rows, (&self.norm, self.epsilon), slope, None)?;
        gradients.add(NORM, &dnorm)?;
        let nothing = Tensor::zeros((1, self.dims.2), slope.dtype(), slope.device())?;
        let rows = Tensor::cat(&[&nothing, &slope], 0)?.index_select(&self.batch.back.inverse, 0)?;
        Ok(rows.reshape(self.dims)?)
    }
}
