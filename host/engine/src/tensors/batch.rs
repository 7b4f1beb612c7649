//! Sequences of different lengths as one padded batch.
//!
//! Shapes: B sequences, T tokens of the longest, R tokens of all answers.

use candle_core::{Device, Tensor};

use crate::SamplingMask;
use crate::core::Sequence;
use crate::model::ModelError;

/// A batch on a device. Padding follows a sequence's tokens. Attention is causal, so no token
/// sees the padding.
pub struct Batch {
    /// Indices of the sequences, in the batch's order.
    pub numbers: Vec<usize>,
    /// The model's input, `[B, T]`, u32.
    pub tokens: Tensor,
    /// Positions among `B · T` that predict an answer's token, sequence by sequence, `[R]`, u32.
    pub places: Tensor,
    /// The tokens of the answers, `[R]`, u32.
    pub targets: Tensor,
    /// The tokens that each target was drawn from, `[R, K]`, u32; shorter rows are padded with the
    /// target. `None` if all were drawn from the whole vocabulary.
    pub masks: Option<Tensor>,
    /// Indices for the gradients of rows.
    #[cfg(any(feature = "cuda", test))]
    pub back: BackIndices,
}

/// Indices for the gradients of rows: from rows of answers to all positions, and from positions to tokens.
#[cfg(any(feature = "cuda", test))]
pub struct BackIndices {
    /// 1 + the index in [`Batch::places`] of each of `B · T` positions, or 0; `[B · T]`, u32.
    pub inverse: Tensor,
    /// The distinct tokens of the input, u32.
    pub tokens: Tensor,
    /// Start of each token's positions in `places`, and the end of the last; u32.
    pub firsts: Tensor,
    /// The positions among `B · T`, token by token, u32, without padding.
    pub places: Tensor,
}

impl Batch {
    /// Returns a batch of the sequences with these indices. Row lengths are multiples of `even`.
    pub fn new(
        even: usize,
        sequences: &[Sequence<'_>],
        numbers: Vec<usize>,
        vocabulary: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let all = || numbers.iter().map(|i| &sequences[*i]);
        let longest = all().map(Sequence::read).max().unwrap_or(0);
        let (b, t) = (numbers.len(), longest.next_multiple_of(even));
        let (mut tokens, mut places, mut targets) = (vec![0_u32; b * t], Vec::new(), Vec::new());
        for (row, sequence) in all().enumerate() {
            known(sequence.tokens, vocabulary)?;
            let first = row * t;
            tokens[first..first + sequence.read()].copy_from_slice(&sequence.tokens[..sequence.read()]);
            places.extend(sequence.generated().map(|place| (first + place - 1) as u32));
            targets.extend(sequence.generated().map(|place| sequence.tokens[place]));
        }
        let r = targets.len();
        let masks = all().map(|sequence| sequence.mask).collect::<Option<Vec<_>>>();
        let masks: Vec<&[u32]> = masks.unwrap_or_default().into_iter().flat_map(SamplingMask::rows).collect();
        let widest = masks.iter().map(|kept| kept.len()).max().unwrap_or(0);
        let filled = |(kept, target): (&&[u32], &u32)| {
            let fill = std::iter::repeat_n(*target, widest - kept.len());
            kept.iter().copied().chain(fill).collect::<Vec<u32>>()
        };
        let masks: Vec<u32> = masks.iter().zip(&targets).flat_map(filled).collect();
        Ok(Self {
            masks: (widest > 0).then(|| Tensor::from_vec(masks, (r, widest), device)).transpose()?,
            #[cfg(any(feature = "cuda", test))]
            back: BackIndices::new(all(), t, &places, b * t, device)?,
            tokens: Tensor::from_vec(tokens, (b, t), device)?,
            places: Tensor::from_vec(places, r, device)?,
            targets: Tensor::from_vec(targets, r, device)?,
            numbers,
        })
    }
}

#[cfg(any(feature = "cuda", test))]
impl BackIndices {
    /// Returns the indices for sequences that begin every `t` of `count` positions; `answers` are
    /// the positions in [`Batch::places`].
    fn new<'s>(
        sequences: impl Iterator<Item = &'s Sequence<'s>>,
        t: usize,
        answers: &[u32],
        count: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let read = |(row, s): (usize, &'s Sequence<'s>)| {
            s.tokens[..s.read()].iter().copied().zip((row * t) as u32..)
        };
        let mut all: Vec<(u32, u32)> = sequences.enumerate().flat_map(read).collect();
        all.sort_unstable();
        let (mut tokens, mut firsts, mut inverse) = (Vec::new(), Vec::new(), vec![0_u32; count]);
        for (i, (token, _)) in all.iter().enumerate() {
            if tokens.last() != Some(token) {
                tokens.push(*token);
                firsts.push(i as u32);
            }
        }
        firsts.push(all.len() as u32);
        for (number, place) in (1..).zip(answers) {
            inverse[*place as usize] = number;
        }
        let places: Vec<u32> = all.into_iter().map(|(_, place)| place).collect();
        let tensor = |numbers: Vec<u32>| Tensor::new(numbers, device);
        Ok(Self {
            inverse: tensor(inverse)?,
            tokens: tensor(tokens)?,
            firsts: tensor(firsts)?,
            places: tensor(places)?,
        })
    }
}

/// Groups sequences into batches by their indices. A batch has similar lengths and, with padding,
/// no more tokens than all sequences have without it. Sequences without an answer are left out.
pub fn batches(sequences: &[Sequence<'_>]) -> Vec<Vec<usize>> {
    let most: usize = sequences.iter().map(Sequence::read).sum();
    let mut order: Vec<usize> = (0..sequences.len()).filter(|i| sequences[*i].answer() > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(sequences[*i].read()), *i));
    let mut rest = order.as_slice();
    let mut all = Vec::new();
    while let Some(longest) = rest.first() {
        let (batch, more) = rest.split_at((most / sequences[*longest].read()).clamp(1, rest.len()));
        all.push(batch.to_vec());
        rest = more;
    }
    all
}

/// Returns an error for tokens without an embedding: a GPU would not report them.
pub fn known(tokens: &[u32], vocabulary: usize) -> Result<(), ModelError> {
    match tokens.iter().find(|token| **token as usize >= vocabulary) {
        Some(token) => Err(ModelError::Token { token: *token, vocabulary }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_never_costs_more_than_there_is() {
        let tokens = vec![1; 1000];
        let of = |lengths: &[usize]| {
            let sequence =
                |n: &usize| Sequence { tokens: &tokens[..n + 1], prompt: 1, observed: &[], mask: None };
            let sequences: Vec<Sequence<'_>> = lengths.iter().map(sequence).collect();
            let all = batches(&sequences);
            let most: usize = lengths.iter().sum();
            for batch in &all {
                let longest = batch.iter().map(|i| lengths[*i]).max().unwrap_or(0);
                assert!(batch.len() * longest <= most, "{lengths:?}: {batch:?}");
            }
            all
        };
        assert_eq!(of(&[5, 5, 5]), [[0, 1, 2]]);
        assert_eq!(of(&[3, 900, 5, 4]), [vec![1], vec![2, 3, 0]]);
        assert_eq!(of(&[7]), [[0]]);
        assert!(of(&[]).is_empty());
        assert_eq!(of(&[1, 2, 3, 4]), [vec![3, 2], vec![1, 0]]);
    }
}
