//! The sampling mask of an answer: for each of its tokens the ones that top-k and top-p left to draw it from. Where it is
//! kept, log-probabilities and entropies are those of that distribution, in sampling, scoring and learning alike
//! (DeepSeek-V3.2, arXiv 2512.02556, section 3.1, "Keep Sampling Mask").

use serde::{Deserialize, Serialize};

/// What a logit becomes that sampling left out: a probability of nothing, and finite wherever it is looked at.
pub const LEFT_OUT: f32 = -1e5;

/// The tokens that each token of an answer was drawn from, in the order of the vocabulary. Empty where none are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingMask {
    tokens: Vec<u32>,
    /// Where each token's end.
    ends: Vec<u32>,
}

impl SamplingMask {
    /// Those of one more token.
    pub fn push(&mut self, kept: &[u32]) {
        self.tokens.extend_from_slice(kept);
        self.ends.push(self.tokens.len() as u32);
    }

    /// Whether none are kept.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Those of each token.
    pub fn rows(&self) -> impl Iterator<Item = &[u32]> {
        let firsts = std::iter::once(0).chain(self.ends.iter().copied());
        firsts.zip(&self.ends).map(|(from, to)| &self.tokens[from as usize..*to as usize])
    }
}

/// Leaves these tokens of a row of logits, and no others.
pub fn leave(logits: &mut [f32], kept: &[u32]) {
    let mut from = 0;
    for token in kept {
        logits[from..*token as usize].fill(LEFT_OUT);
        from = *token as usize + 1;
    }
    logits[from..].fill(LEFT_OUT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_was_put_in() {
        let mut mask = SamplingMask::default();
        assert!(mask.is_empty() && mask.rows().next().is_none());
        mask.push(&[1, 5]);
        mask.push(&[]);
        mask.push(&[0]);
        assert_eq!(mask.rows().collect::<Vec<_>>(), [&[1, 5][..], &[], &[0]]);
        let mut logits = [0.5; 4];
        leave(&mut logits, &[1, 3]);
        assert_eq!(logits, [LEFT_OUT, 0.5, LEFT_OUT, 0.5]);
    }
}
