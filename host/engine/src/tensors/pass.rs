//! A pass over a batch: embeddings, blocks, head; forward alone to score, or forward and backward to
//! learn.
//!
//! Shapes: B sequences, T tokens of the longest, R tokens of all answers, D hidden.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{DType, Result as Computed, Tensor, Var};

use super::batch::Batch;
use super::head::{Head, told};
use super::learning::Learning;
use crate::core::{Loss, Manner, Thought};
use crate::model::{Checkpoint, Decoder, ModelError};

/// Gradients by the names of weights, f32.
pub type Gradients = BTreeMap<String, Tensor>;

/// A pass with some weights over a batch.
pub struct Pass<'a> {
    learning: &'a dyn Learning,
    weights: &'a Checkpoint,
    batch: &'a Batch,
    manner: Manner,
    rotations: (Tensor, Tensor),
}

impl<'a> Pass<'a> {
    /// Ready to go.
    pub fn new(
        learning: &'a dyn Learning,
        weights: &'a Checkpoint,
        batch: &'a Batch,
        manner: Manner,
    ) -> Result<Self, ModelError> {
        let rotations = Decoder::frozen(weights).rope(&batch.positions)?;
        Ok(Self { learning, weights, batch, manner, rotations })
    }

    /// What the model thinks of all answers' tokens, in the order of the batch.
    pub fn score(&self) -> Result<Vec<Thought>, ModelError> {
        let decoder = Decoder::frozen(self.weights).by(self.learning);
        let x_btd = self.blocks(&decoder, decoder.embed(&self.batch.tokens)?)?;
        let x_rd = self.answers(&decoder, &x_btd)?;
        Ok(told(&self.head()?.think(&x_rd, &self.batch.targets)?)?)
    }

    /// The same, and then the backward pass, whose gradients are added to those given. `answers` are the
    /// lengths of the answers, in the order of the batch.
    pub fn learn(
        &self,
        answers: &[usize],
        loss: &Loss<'_>,
        gradients: &mut Gradients,
    ) -> Result<(), ModelError> {
        let [frozen, decoder] =
            [Decoder::frozen(self.weights), Decoder::new(self.weights)].map(|d| d.by(self.learning));
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
        let said = head.think(&read, &self.batch.targets)?;
        let thoughts = told(&said)?;
        let mut dlog_probs = Vec::with_capacity(thoughts.len());
        let mut rest = thoughts.as_slice();
        for (number, answer) in self.batch.numbers.iter().zip(answers) {
            let (own, more) = rest.split_at(*answer);
            dlog_probs.extend(loss(*number, own));
            rest = more;
        }
        let dlog_probs = Tensor::from_vec(dlog_probs, thoughts.len(), read.device())?;
        let (dx_rd, dhead) = head.back(&read, &self.batch.targets, &said, &dlog_probs)?;
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
        decoder
            .block(layer, x_btd, &self.rotations, |q, k, v| self.learning.attend(q, k, v, &self.batch.ahead))
    }

    /// The rows that foretell an answer's token, after the final norm, `[R, D]`. The others have no part
    /// in it.
    fn answers(&self, decoder: &Decoder<'_>, x_btd: &Tensor) -> Result<Tensor, ModelError> {
        decoder.finish(&self.learning.answers(x_btd, self.batch)?)
    }

    fn head(&self) -> Result<Head<'a>, ModelError> {
        let weight = Decoder::frozen(self.weights).head()?;
        Ok(Head { weight, temperature: self.manner.temperature, learning: self.learning })
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

    /// The embedding's gradient.
    fn embedded(&self, dx_btd: &Tensor, gradients: &mut Gradients) -> Result<(), ModelError> {
        const NAME: &str = "model.embed_tokens.weight";
        let sum = if let Some(sum) = gradients.remove(NAME) {
            sum
        } else {
            let shape = &self.weights.shape;
            Tensor::zeros((shape.vocabulary, shape.hidden), DType::F32, dx_btd.device())?
        };
        gradients.insert(NAME.to_owned(), self.learning.embedded(sum, dx_btd, self.batch)?);
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
