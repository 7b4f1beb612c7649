//! Floating-point operations of a model's passes. A multiplication and an addition are two.
//!
//! Matrix products and attention (by position) are counted as the passes need them, without a
//! core's extra work to save memory. The small products of adapters are left out. So are norms,
//! rope and activations, as is usual: they are less than a hundredth of the rest. The rule of
//! thumb "2ND for a pass, 6ND for training" (Kaplan et al. 2020, arXiv 2001.08361) is this
//! count without attention, with the embedding's rows for the head's.

use std::ops::Range;

use allot_allocation::{Compute, GrantLine, PromptId};

use crate::model::Shape;
use crate::{Answer, Sample};

/// Lengths of a rollout, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The prompt.
    pub prompt: usize,
    /// What was generated.
    pub answer: usize,
    /// What an environment said between the turns.
    pub read: usize,
}

impl Lengths {
    /// Returns the lengths of a prompt and an answer of one turn.
    pub fn of(prompt: usize, answer: usize) -> Self {
        Self { prompt, answer, read: 0 }
    }

    /// Returns the tokens that a model reads in one pass: all but the last, which is only predicted.
    pub fn passed(self) -> usize {
        (self.prompt + self.answer + self.read).saturating_sub(1)
    }
}

impl Shape {
    /// Operations of reading a prompt of this many tokens, including the head for the first answer token.
    pub fn prefill_flops(&self, prompt: usize) -> f64 {
        self.blocks_flops(0..prompt) + self.head_flops()
    }

    /// Operations of the answer's tokens after the first, which the prompt's pass gave. Each token of an
    /// environment is read once, because keys and values of an episode are kept.
    pub fn decode_flops(&self, lengths: Lengths) -> f64 {
        let more = lengths.answer.saturating_sub(1);
        self.blocks_flops(lengths.prompt..lengths.passed().max(lengths.prompt))
            + more as f64 * self.head_flops()
    }

    /// Operations of one pass over prompt and answer, with the head only at the answer's tokens.
    /// The last token is only predicted, not read.
    pub fn pass_flops(&self, lengths: Lengths) -> f64 {
        self.blocks_flops(0..lengths.passed()) + lengths.answer as f64 * self.head_flops()
    }

    /// Compute of sampling these rollouts, granted in these lines. `length` returns a prompt's
    /// tokens. A prompt is read once for all the answers that a line grants.
    pub fn sampled(
        &self,
        lines: &[GrantLine],
        samples: &[Sample<Answer>],
        length: impl Fn(PromptId) -> usize,
    ) -> Compute {
        let mut compute = Compute::default();
        for prompt in lines.iter().map(|line| length(line.prompt)) {
            compute.prompt_tokens += prompt as u64;
            compute.flops.prefill += self.prefill_flops(prompt);
        }
        for sample in samples {
            compute.read_tokens += sample.answer.read() as u64;
            for row in sample.answer.rows() {
                let (answer, read) = (row.answer(), row.own.len() - row.answer());
                compute.flops.decode += match row.beginning.as_ref().map(Vec::len) {
                    None => self.decode_flops(Lengths { prompt: length(sample.prompt), answer, read }),
                    // What a later row begins with is read for it alone.
                    Some(prompt) => {
                        self.prefill_flops(prompt) + self.decode_flops(Lengths { prompt, answer, read })
                    }
                };
            }
        }
        compute
    }

    /// Operations of all blocks for tokens at these positions.
    pub(crate) fn blocks_flops(&self, positions: Range<usize>) -> f64 {
        let (queries, keys) = ((self.heads * self.head) as f64, (self.kv_heads * self.head) as f64);
        let hidden = self.hidden as f64;
        // A token goes through the active experts; the router scores all experts.
        let inner = match self.variant.experts {
            Some(experts) => 3.0 * (experts.active * experts.intermediate) as f64 + experts.count as f64,
            None => 3.0 * self.intermediate as f64,
        };
        let weights = hidden * (2.0 * queries + 2.0 * keys + inner);
        let tokens = positions.len() as f64;
        self.layers as f64 * 2.0 * weights * tokens + self.attention_flops(positions)
    }

    /// Operations of attention alone, which has no weights. A token attends to itself and all tokens
    /// before it, or to those in its window. Each costs one product with its key and one with its value.
    pub fn attention_flops(&self, positions: Range<usize>) -> f64 {
        let all = |positions: Range<usize>| {
            let (tokens, before) = (positions.len() as f64, positions.start as f64);
            tokens * before + tokens * (tokens + 1.0) / 2.0
        };
        let seen = |layer| {
            // Up to this position a token sees all tokens before it.
            let full = self.window(layer).unwrap_or(positions.end).clamp(positions.start, positions.end);
            all(positions.start..full)
                + (positions.end - full) as f64 * self.window(layer).unwrap_or(0) as f64
        };
        let seen: f64 = (0..self.layers).map(seen).sum();
        4.0 * (self.heads * self.head) as f64 * seen
    }

    /// Operations of the head for one token.
    fn head_flops(&self) -> f64 {
        2.0 * self.hidden as f64 * self.vocabulary as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Experts, Family, Rope, Variant};

    fn shape() -> Shape {
        Shape {
            family: Family::LLAMA,
            vocabulary: 7,
            hidden: 4,
            intermediate: 10,
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head: 2,
            epsilon: 1e-5,
            rope: Rope::plain(1e4),
            tied: true,
            context: 64,
            variant: Variant::default(),
        }
    }

    #[test]
    fn operations_are_those_of_the_products_counted_one_by_one() {
        let shape = shape();
        // Query and output are 4×4, key and value 4×2, gate, up and down 4×10.
        let weights = f64::from(2 * 16 + 2 * 8 + 3 * 40);
        // The third token sees three positions, in 2 heads of width 2, twice.
        let third = 2.0 * (2.0 * weights + 2.0 * 2.0 * 3.0 * 4.0);
        assert_eq!(shape.blocks_flops(2..3), third);
        let head = 2.0 * 4.0 * 7.0;
        assert_eq!(shape.decode_flops(Lengths::of(2, 2)), third + head);
        let apart: f64 = (0..5).map(|i| shape.blocks_flops(i..i + 1)).sum();
        assert_eq!(shape.prefill_flops(5), apart + head);
        assert_eq!(shape.decode_flops(Lengths::of(5, 1)), 0.0);
    }

    #[test]
    fn of_experts_those_that_are_active_count() {
        let mut mixture = shape();
        let experts = Experts { count: 6, active: 2, intermediate: 3, normalized: true };
        mixture.variant.experts = Some(experts);
        let plain = shape().blocks_flops(2..3) - 2.0 * 2.0 * f64::from(3 * 40);
        // In 2 layers: 2 experts of three 4×3 matrices, and a router of 4×6.
        assert_eq!(mixture.blocks_flops(2..3), plain + 2.0 * 2.0 * f64::from(2 * 3 * 12 + 24));
    }

    #[test]
    fn past_a_window_a_token_costs_no_more() {
        let plain = shape();
        let windowed = |sliding: Vec<bool>| Shape {
            variant: Variant { window: Some(3), sliding, ..Variant::default() },
            ..shape()
        };
        let (every, one) = (windowed(Vec::new()), windowed(vec![true, false]));
        // One more visible token in a layer: products with its key and its value, in 2 heads of width 2.
        let each = 2.0 * 2.0 * 4.0;
        for position in 0..8 {
            let of = |shape: &Shape| shape.attention_flops(position..position + 1);
            let seen = position as f64 + 1.0;
            assert_eq!(of(&plain), 2.0 * seen * each);
            assert_eq!(of(&every), 2.0 * seen.min(3.0) * each);
            assert_eq!(of(&one), (seen + seen.min(3.0)) * each);
        }
        for range in [0..2, 0..7, 2..3, 2..9, 5..9, 4..4] {
            let apart: f64 = range.clone().map(|i| one.attention_flops(i..i + 1)).sum();
            assert_eq!(one.attention_flops(range), apart);
        }
    }

    #[test]
    fn a_pass_over_all_is_prefill_and_decode_together() {
        let shape = shape();
        assert_eq!(
            shape.pass_flops(Lengths::of(5, 4)),
            shape.prefill_flops(5) + shape.decode_flops(Lengths::of(5, 4))
        );
    }
}
