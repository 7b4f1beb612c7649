//! Sequences of other lengths as one padded batch.
//!
//! Shapes: B sequences, T tokens of the longest, R tokens of all answers.

use candle_core::{Device, Tensor};

use crate::core::Sequence;
use crate::model::ModelError;

/// A batch on a device. Padding comes after a sequence's tokens: nothing looks ahead, so that none of them
/// sees it.
pub struct Batch {
    /// The sequences' numbers, in the batch's order.
    pub numbers: Vec<usize>,
    /// What the model reads, `[B, T]`, u32.
    pub tokens: Tensor,
    /// `0..T`, `[1, T]`, u32.
    pub positions: Tensor,
    /// What is added to attention scores, `[1, 1, T, T]`, f32.
    pub bias: Tensor,
    /// The places among `B · T` that foretell an answer's token, sequence by sequence, `[R]`, u32.
    pub places: Tensor,
    /// The tokens of the answers, `[R]`, u32.
    pub targets: Tensor,
}

impl Batch {
    /// These sequences, by their numbers.
    pub fn new(
        sequences: &[Sequence<'_>],
        numbers: Vec<usize>,
        vocabulary: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let all = || numbers.iter().map(|i| &sequences[*i]);
        let (b, t) = (numbers.len(), all().map(Sequence::read).max().unwrap_or(0));
        let (mut tokens, mut places, mut targets) = (vec![0_u32; b * t], Vec::new(), Vec::new());
        for (row, sequence) in all().enumerate() {
            known(sequence.tokens, vocabulary)?;
            let first = row * t;
            tokens[first..first + sequence.read()].copy_from_slice(&sequence.tokens[..sequence.read()]);
            places.extend((first + sequence.prompt - 1..first + sequence.read()).map(|place| place as u32));
            targets.extend_from_slice(&sequence.tokens[sequence.prompt..]);
        }
        let r = targets.len();
        Ok(Self {
            tokens: Tensor::from_vec(tokens, (b, t), device)?,
            positions: Tensor::arange(0, t as u32, device)?.unsqueeze(0)?,
            bias: causal(t, device)?,
            places: Tensor::from_vec(places, r, device)?,
            targets: Tensor::from_vec(targets, r, device)?,
            numbers,
        })
    }
}

/// The numbers of sequences that go into a batch together: sequences of about one length, and with their
/// padding no more tokens than all sequences have without it. Sequences without an answer have nothing to
/// tell and are left out.
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

/// Refuses tokens that the model has no embedding for: on a GPU nothing would say so.
pub fn known(tokens: &[u32], vocabulary: usize) -> Result<(), ModelError> {
    match tokens.iter().find(|token| **token as usize >= vocabulary) {
        Some(token) => Err(ModelError::Token { token: *token, vocabulary }),
        None => Ok(()),
    }
}

/// 0 where a token may look, far below where it is ahead: `[1, 1, T, T]`.
pub fn causal(t: usize, device: &Device) -> Result<Tensor, ModelError> {
    let bias = (0..t).flat_map(|i| (0..t).map(move |j| if j <= i { 0.0_f32 } else { -1e9 })).collect();
    Ok(Tensor::from_vec(bias, (1, 1, t, t), device)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_never_costs_more_than_there_is() {
        let tokens = vec![1; 1000];
        let of = |lengths: &[usize]| {
            let sequence = |n: &usize| Sequence { tokens: &tokens[..n + 1], prompt: 1 };
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
