//! A pass over a batch: embeddings, blocks, head; forward only to score, or forward and backward to learn.
//!
//! Shapes: B sequences, T tokens of the longest, R tokens of all answers, D hidden.

use candle_core::{DType, Tensor};

use super::batch::Batch;
use super::gradients::Gradients;
use super::head::{Head, told};
use super::learning::{Learning, PassTokens, Slopes};
use crate::core::{Loss, PassOptions, TokenGradients, TokenStatistics};
use crate::model::{Checkpoint, Decoder, ModelError};

/// A pass with some weights over a batch.
pub struct Pass<'a> {
    learning: &'a dyn Learning,
    weights: &'a Checkpoint,
    batch: &'a Batch,
    options: PassOptions,
    way: PassTokens,
}

impl<'a> Pass<'a> {
    /// Returns a pass that is ready to run.
    pub fn new(
        learning: &'a dyn Learning,
        weights: &'a Checkpoint,
        batch: &'a Batch,
        options: PassOptions,
    ) -> Result<Self, ModelError> {
        let way = PassTokens::new(learning, weights, batch.tokens.dim(1)?, batch.tokens.device())?;
        Ok(Self { learning, weights, batch, options, way })
    }

    /// Returns statistics of all answers' tokens, in the order of the batch.
    pub fn score(&self) -> Result<Vec<TokenStatistics>, ModelError> {
        let mut x_btd = self.embeddings()?;
        for layer in 0..self.weights.shape.layers {
            x_btd = self.learning.block(self.weights, layer, &x_btd, &self.way, false)?.stream;
        }
        let (x_rd, _) = self.learning.answers(self.weights, &x_btd, self.batch, false)?;
        Ok(told(&self.head()?.logprob_entropy(&x_rd, &self.batch.targets)?)?)
    }

    /// Runs the forward and backward passes and adds to `gradients`. `answers` are the lengths of
    /// the answers, in the order of the batch.
    pub fn learn(
        &self,
        answers: &[usize],
        loss: &Loss<'_>,
        gradients: &mut Gradients,
    ) -> Result<(), ModelError> {
        // The blocks' backward passes; or the blocks' inputs, if blocks are recomputed.
        let (mut ways, mut inputs) = (Vec::new(), Vec::new());
        let (layers, keep) = (self.weights.shape.layers, !self.options.recompute);
        let mut x_btd = self.embeddings()?;
        for layer in 0..layers {
            let made = self.learning.block(self.weights, layer, &x_btd, &self.way, keep)?;
            let input = std::mem::replace(&mut x_btd, made.stream);
            if keep {
                ways.extend(made.back);
            } else {
                inputs.push(input);
            }
        }
        let (x_rd, last) = self.learning.answers(self.weights, &x_btd, self.batch, true)?;
        drop(x_btd);

        let head = self.head()?;
        let said = head.logprob_entropy(&x_rd, &self.batch.targets)?;
        let statistics = told(&said)?;
        let mut slopes = TokenGradients::default();
        let mut rest = statistics.as_slice();
        for (number, answer) in self.batch.numbers.iter().zip(answers) {
            let (own, more) = rest.split_at(*answer);
            slopes.extend(loss(*number, own));
            rest = more;
        }
        let slopes = Slopes::new(slopes, x_rd.device())?;
        let name = self.weights.shape.head_name();
        let wanted = gradients.wants(name);
        let sum = gradients.take(name);
        let (dx_rd, dhead) = head.back(&x_rd, &self.batch.targets, &said, &slopes, (wanted, sum))?;
        if let Some(dhead) = dhead {
            gradients.renew(name, |_| Ok(dhead))?;
        }

        let Some(last) = last else { return Ok(()) };
        let mut dx_btd = last.back(&dx_rd, gradients)?;
        for layer in (0..layers).rev() {
            let back = match inputs.pop() {
                Some(input) => self.learning.block(self.weights, layer, &input, &self.way, true)?.back,
                None => ways.pop(),
            };
            let Some(back) = back else { break };
            dx_btd = back.back(&dx_btd, gradients)?;
        }
        self.embedded(&dx_btd, gradients)
    }

    fn embeddings(&self) -> Result<Tensor, ModelError> {
        Decoder::frozen(self.weights).embed(&self.batch.tokens)
    }

    fn head(&self) -> Result<Head<'a>, ModelError> {
        let decoder = Decoder::frozen(self.weights);
        Ok(Head {
            weight: decoder.head()?,
            decoder,
            variant: &self.weights.shape.variant,
            temperature: self.options.temperature,
            learning: self.learning,
            masks: self.batch.masks.as_ref(),
        })
    }

    /// Adds to the embedding's gradient.
    fn embedded(&self, dx_btd: &Tensor, gradients: &mut Gradients) -> Result<(), ModelError> {
        const NAME: &str = "model.embed_tokens.weight";
        if !gradients.wants(NAME) {
            return Ok(());
        }
        let shape = &self.weights.shape;
        let scale = shape.variant.embedding;
        let dx_btd = &if scale == 1.0 { dx_btd.clone() } else { (dx_btd * scale)? };
        let none = || Tensor::zeros((shape.vocabulary, shape.hidden), DType::F32, dx_btd.device());
        Ok(gradients
            .renew(NAME, |sum| self.learning.embedded(sum.map_or_else(none, Ok)?, dx_btd, self.batch))?)
    }
}
