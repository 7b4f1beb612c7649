//! A pass over a batch: embeddings, blocks, head; forward alone to score, or forward and backward to
//! learn.
//!
//! Shapes: B sequences, T tokens of the longest, R tokens of all answers, D hidden.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{DType, Result as Computed, Tensor, Var};

use super::batch::Batch;
use super::head::Head;
use crate::core::{Loss, Manner, Thought};
use crate::model::{Checkpoint, Decoder, ModelError, attend};

/// Gradients by the names of weights, f32.
pub type Gradients = BTreeMap<String, Tensor>;

/// A pass with some weights over a batch.
pub struct Pass<'a> {
    weights: &'a Checkpoint,
    batch: &'a Batch,
    manner: Manner,
    rotations: (Tensor, Tensor),
}

impl<'a> Pass<'a> {
    /// Ready to go.
    pub fn new(weights: &'a Checkpoint, batch: &'a Batch, manner: Manner) -> Result<Self, ModelError> {
        let rotations = Decoder::frozen(weights).rope(&batch.positions)?;
        Ok(Self { weights, batch, manner, rotations })
    }

    /// What the model thinks of all answers' tokens, in the order of the batch.
    pub fn score(&self) -> Result<Vec<Thought>, ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let x_btd = self.blocks(&decoder, decoder.embed(&self.batch.tokens)?)?;
        let x_rd = self.answers(&decoder, &x_btd)?;
        Ok(self.head()?.think(&x_rd, &self.batch.targets)?)
    }

    /// The same, and then the backward pass, whose gradients are added to those given. `answers` are the
    /// lengths of the answers, in the order of the batch.
    pub fn learn(
        &self,
        answers: &[usize],
        loss: &Loss<'_>,
        gradients: &mut Gradients,
    ) -> Result<(), ModelError> {
        let (frozen, decoder) = (Decoder::frozen(self.weights), Decoder::new(self.weights));
        // What each part of the way begins with: the whole of it, or each block, of which nothing else is
        // kept then. A part ends where the next begins, so that candle's backward pass stops there.
        let mut inputs = vec![Var::from_tensor(&frozen.embed(&self.batch.tokens)?)?];
        let last = if self.manner.recompute {
            for layer in 0..self.weights.shape.layers {
                let x_btd = inputs[layer].as_detached_tensor();
                inputs.push(Var::from_tensor(&self.block(&frozen, layer, &x_btd)?)?);
            }
            inputs[inputs.len() - 1].as_tensor().clone()
        } else {
            self.blocks(&decoder, inputs[0].as_tensor().clone())?
        };
        let x_rd = self.answers(&decoder, &last)?;

        let (head, read) = (self.head()?, x_rd.detach());
        let thoughts = head.think(&read, &self.batch.targets)?;
        let mut dlog_probs = Vec::with_capacity(thoughts.len());
        let mut rest = thoughts.as_slice();
        for (number, answer) in self.batch.numbers.iter().zip(answers) {
            let (own, more) = rest.split_at(*answer);
            dlog_probs.extend(loss(*number, own));
            rest = more;
        }
        let dlog_probs = Tensor::from_vec(dlog_probs, thoughts.len(), read.device())?;
        let (dx_rd, dhead) = head.back(&read, &self.batch.targets, &dlog_probs)?;
        add(gradients, self.weights.shape.head_name(), &dhead)?;
        drop(dhead);

        let mut store = back(&x_rd, &dx_rd)?;
        drop((x_rd, last));
        let mut dx_btd = self.collect(&mut store, inputs.pop(), gradients)?;
        for layer in (0..inputs.len()).rev() {
            let Some(input) = inputs.pop() else { break };
            let out = self.block(&decoder, layer, input.as_tensor())?;
            let mut store = back(&out, &dx_btd)?;
            dx_btd = self.collect(&mut store, Some(input), gradients)?;
        }
        self.embedded(&dx_btd, gradients)
    }

    /// All blocks.
    fn blocks(&self, decoder: &Decoder<'_>, x_btd: Tensor) -> Result<Tensor, ModelError> {
        (0..self.weights.shape.layers).try_fold(x_btd, |x_btd, layer| self.block(decoder, layer, &x_btd))
    }

    fn block(&self, decoder: &Decoder<'_>, layer: usize, x_btd: &Tensor) -> Result<Tensor, ModelError> {
        decoder.block(layer, x_btd, &self.rotations, |q, k, v| attend(q, k, v, &self.batch.bias))
    }

    /// The rows that foretell an answer's token, after the final norm, `[R, D]`. The others have no part
    /// in it.
    fn answers(&self, decoder: &Decoder<'_>, x_btd: &Tensor) -> Result<Tensor, ModelError> {
        let rows = x_btd.flatten(0, 1)?.index_select(&self.batch.places, 0)?;
        decoder.finish(&rows)
    }

    fn head(&self) -> Result<Head, ModelError> {
        let weight = Decoder::frozen(self.weights).head()?;
        Ok(Head { weight, temperature: self.manner.temperature })
    }

    /// Adds what candle's backward pass found to the gradients, and gives that of the input.
    fn collect(
        &self,
        store: &mut GradStore,
        input: Option<Var>,
        gradients: &mut Gradients,
    ) -> Result<Tensor, ModelError> {
        for (name, weight) in &self.weights.weights {
            if let Some(gradient) = store.remove(weight) {
                add(gradients, name, &gradient)?;
            }
        }
        let dx = input.and_then(|input| store.remove(&input));
        let dx = dx.ok_or_else(|| candle_core::Error::Msg("the input has no gradient".to_owned()))?;
        Ok(dx.detach())
    }

    /// The embedding's gradient. Summed in float32 whatever the kind of number: a common token is there
    /// thousands of times.
    fn embedded(&self, dx_btd: &Tensor, gradients: &mut Gradients) -> Result<(), ModelError> {
        const NAME: &str = "model.embed_tokens.weight";
        let dx = dx_btd.flatten(0, 1)?.to_dtype(DType::F32)?.contiguous()?;
        let sum = if let Some(sum) = gradients.remove(NAME) {
            sum
        } else {
            let shape = &self.weights.shape;
            Tensor::zeros((shape.vocabulary, shape.hidden), DType::F32, dx.device())?
        };
        gradients.insert(NAME.to_owned(), sum.index_add(&self.batch.tokens.flatten_all()?, &dx, 0)?);
        Ok(())
    }
}

/// candle's backward pass from the gradient of what came out.
fn back(out: &Tensor, dout: &Tensor) -> Computed<GradStore> {
    (out * dout)?.sum_all()?.backward()
}

fn add(gradients: &mut Gradients, name: &str, gradient: &Tensor) -> Computed<()> {
    // Detached: candle leaves to a variable's gradient all that it was made of, activations with it.
    let gradient = gradient.detach().to_dtype(DType::F32)?;
    let sum = match gradients.remove(name) {
        Some(sum) => (sum + gradient)?,
        None => gradient,
    };
    gradients.insert(name.to_owned(), sum);
    Ok(())
}
