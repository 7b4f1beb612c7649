//! The sampling mask of an answer: for each token, the tokens that top-k and top-p left to draw from.
//! If it is kept, log-probabilities and entropies are those of the masked distribution in sampling,
//! scoring and learning (DeepSeek-V3.2, arXiv 2512.02556, section 3.1, "Keep Sampling Mask").

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Logit of an excluded token: its probability is practically 0 and all results stay finite.
pub const LEFT_OUT: f32 = -1e5;

/// The tokens that each answer token was drawn from, in vocabulary order. Empty if they are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingMask {
    tokens: Vec<u32>,
    /// End of each answer token's part of `tokens`.
    ends: Vec<u32>,
}

impl SamplingMask {
    /// Appends the tokens that the next answer token was drawn from.
    pub fn push(&mut self, kept: &[u32]) {
        self.tokens.extend_from_slice(kept);
        self.ends.push(self.tokens.len() as u32);
    }

    /// Returns whether no masks are kept.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the masks of some answer tokens, given by ranges.
    pub fn gather(&self, ranges: &[Range<usize>]) -> Self {
        let (mut some, rows) = (Self::default(), self.rows().collect::<Vec<_>>());
        if !self.is_empty() {
            ranges.iter().flat_map(|range| &rows[range.clone()]).for_each(|row| some.push(row));
        }
        some
    }

    /// Returns the mask of each answer token.
    pub fn rows(&self) -> impl Iterator<Item = &[u32]> {
        let firsts = std::iter::once(0).chain(self.ends.iter().copied());
        firsts.zip(&self.ends).map(|(from, to)| &self.tokens[from as usize..*to as usize])
    }
}

/// Sets the logits of all tokens but `kept` to [`LEFT_OUT`].
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
