//! Sampling many answers at once on a device.
//!
//! A prompt is read once for all of its answers. A finished answer gives its slot of the caches
//! to the next. [`Steps`] generates the tokens: with candle's operations (`plain.rs`) or this
//! crate's kernels (`fused.rs`).
//!
//! A device's sums depend on the shapes of its inputs, so a row's last bits may depend on the rows sampled
//! beside it. The random numbers do not: they come from an answer's own seed, in [`Draft`], as on the CPU.
//!
//! Shapes: K key and value heads, T tokens, E head, V vocabulary.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use super::batch::known;
use super::learning::{Learning, PassTokens};
use crate::Interrupt;
use crate::core::{Answered, Request};
use crate::draft::Draft;
use crate::model::{Checkpoint, Decoder, ModelError};

/// Prompt tokens that are read at a time, including padding; a longer prompt is read alone.
const AT_ONCE: usize = 1 << 13;

/// Inputs of sampling.
pub struct Decode<'a> {
    /// The weights to compute with.
    pub weights: &'a Checkpoint,
    /// Reads the prompts.
    pub learning: &'a dyn Learning,
    /// Polled once per token, or once for several tokens.
    pub interrupt: &'a Interrupt,
}

/// The result of reading a prompt.
pub struct Prefix {
    /// Keys of the first block, its values, keys of the second block, and so on: `[2 blocks, K, T, E]`.
    pub caches: Tensor,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Logits of the next token, `[V]`.
    pub logits: Tensor,
}

/// An answer that is being generated.
pub struct Active {
    number: usize,
    /// The result of reading its prompt.
    pub prefix: Arc<Prefix>,
    /// The answer so far.
    pub draft: Draft,
}

/// Number of slots in the caches, and the lengths that they must hold.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Answers sampled at a time.
    pub slots: usize,
    /// Maximum tokens read of a prompt and an answer together. An answer's last token is never read.
    pub whole: usize,
    /// Maximum tokens read of an answer.
    #[cfg(any(feature = "cuda", test))]
    pub answer: usize,
}

/// Generates tokens. `owners` are the answers in the slots of the caches.
pub trait Steps {
    /// Starts the answers that are now in these slots.
    fn begin(&mut self, owners: &mut [Option<Active>], slots: &[usize]) -> Result<(), ModelError>;

    /// Adds one or several tokens to every unfinished answer.
    fn advance(&mut self, owners: &mut [Option<Active>]) -> Result<(), ModelError>;

    /// Removes free slots once they are at least half of all. Near the end only the longest answers
    /// remain, and each token would otherwise cost as much as for all slots.
    fn shrink(&mut self, owners: &mut Vec<Option<Active>>) -> Result<(), ModelError>;
}

impl Extent {
    /// Returns the extent for these requests, `rows` at a time.
    pub fn of(requests: &[Request<'_>], rows: usize) -> Self {
        let answer = |r: &Request<'_>| (r.sampling.max_tokens as usize).saturating_sub(1);
        Self {
            slots: rows.clamp(1, requests.len().max(1)),
            whole: requests.iter().map(|r| r.prompt.len() + answer(r)).max().unwrap_or(0),
            #[cfg(any(feature = "cuda", test))]
            answer: requests.iter().map(answer).max().unwrap_or(0),
        }
    }
}

impl Decode<'_> {
    /// Samples an answer to each request. `whole` receives each complete answer with its request's index.
    pub fn run(
        &self,
        requests: &[Request<'_>],
        slots: usize,
        steps: &mut dyn Steps,
        whole: &mut dyn FnMut(usize, Answered),
    ) -> Result<(), ModelError> {
        let vocabulary = self.weights.shape.vocabulary;
        requests.iter().try_for_each(|r| known(r.prompt, vocabulary))?;
        let mut owners: Vec<Option<Active>> = (0..slots).map(|_| None).collect();
        let (mut next, mut shared) = (0, None);
        loop {
            // A new answer may already have its first token, and this may be its last.
            while next < requests.len() && owners.iter().any(Option::is_none) {
                next = self.admit(requests, next, &mut owners, steps, &mut shared)?;
                retire(&mut owners, whole);
            }
            if owners.iter().all(Option::is_none) || self.interrupt.is_asked() {
                return Ok(());
            }
            steps.shrink(&mut owners)?;
            steps.advance(&mut owners)?;
            retire(&mut owners, whole);
        }
    }

    /// Gives free slots to the next requests. Returns the index of the first remaining request.
    fn admit<'r>(
        &self,
        requests: &[Request<'r>],
        next: usize,
        owners: &mut [Option<Active>],
        steps: &mut dyn Steps,
        shared: &mut Option<(&'r [u32], Arc<Prefix>)>,
    ) -> Result<usize, ModelError> {
        let mut free: Vec<usize> = (0..owners.len()).filter(|i| owners[*i].is_none()).collect();
        free.truncate(requests.len() - next);
        let taken = &requests[next..next + free.len()];
        // Consecutive requests share a read of their prompt; the last prompt may come from the call before.
        let mut prompts: Vec<&'r [u32]> = taken.iter().map(|r| r.prompt).collect();
        prompts.dedup();
        let known = shared.take().filter(|(old, _)| prompts.first() == Some(old));
        let skip = usize::from(known.is_some());
        let mut read: Vec<Arc<Prefix>> = known.into_iter().map(|(_, prefix)| prefix).collect();
        let mut rest = &prompts[skip..];
        while !rest.is_empty() {
            let (mut count, mut longest) = (0, 0);
            while count < rest.len()
                && (count == 0 || (count + 1) * longest.max(rest[count].len()) <= AT_ONCE)
            {
                longest = longest.max(rest[count].len());
                count += 1;
            }
            let (batch, more) = rest.split_at(count);
            read.extend(self.read(batch, longest)?.into_iter().map(Arc::new));
            rest = more;
        }
        let mut which = 0;
        for (i, (request, slot)) in taken.iter().zip(&free).enumerate() {
            which += usize::from(i > 0 && request.prompt != taken[i - 1].prompt);
            let (prefix, draft) = (Arc::clone(&read[which]), Draft::new(request));
            owners[*slot] = Some(Active { number: next + i, prefix, draft });
        }
        steps.begin(owners, &free)?;
        *shared = prompts.last().copied().zip(read.pop());
        Ok(next + taken.len())
    }

    /// Reads prompts, the longest of which has `longest` tokens.
    fn read(&self, prompts: &[&[u32]], longest: usize) -> Result<Vec<Prefix>, ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let longest = longest.next_multiple_of(self.learning.even());
        let (_, device) = kind(self.weights)?;
        // Padding comes last, and no token that counts attends to it.
        let mut tokens = vec![0_u32; prompts.len() * longest];
        for (row, prompt) in tokens.chunks_exact_mut(longest).zip(prompts) {
            row[..prompt.len()].copy_from_slice(prompt);
        }
        let tokens = Tensor::from_vec(tokens, (prompts.len(), longest), &device)?;
        let way = PassTokens::new(self.learning, self.weights, longest, &device)?;

        let (mut x, shape) = (decoder.embed(&tokens)?, &self.weights.shape);
        // One tensor for all blocks, so that a prompt's part is copied at once: many short prompts would
        // otherwise take longer to copy, a launch for each block, than to read.
        let dims = (2 * shape.layers, prompts.len(), shape.kv_heads, longest, shape.head);
        let caches = Tensor::zeros(dims, x.dtype(), &device)?;
        for layer in 0..shape.layers {
            let made = self.learning.block(self.weights, layer, &x, &way, false)?;
            for (i, cache) in [made.cache.0, made.cache.1].iter().enumerate() {
                caches.slice_set(&cache.contiguous()?.unsqueeze(0)?, 0, 2 * layer + i)?;
            }
            x = made.stream;
        }
        let own = |i: usize| caches.narrow(1, i, 1)?.narrow(3, 0, prompts[i].len())?.squeeze(1)?.contiguous();
        let last: Vec<u32> =
            prompts.iter().enumerate().map(|(i, p)| (i * longest + p.len() - 1) as u32).collect();
        let last = Tensor::from_vec(last, prompts.len(), &device)?;
        let logits = logits(&decoder, &x.flatten(0, 1)?.index_select(&last, 0)?)?;
        let prefix =
            |i: usize| Ok(Prefix { caches: own(i)?, tokens: prompts[i].len(), logits: logits.get(i)? });
        (0..prompts.len()).map(prefix).collect()
    }
}

/// Returns the number format and the device that a model computes with.
pub fn kind(weights: &Checkpoint) -> Result<(DType, Device), ModelError> {
    let head = Decoder::frozen(weights).head()?;
    Ok((head.dtype(), head.device().clone()))
}

/// Applies the final norm and the head: `[R, D]` to `[R, V]`.
pub fn logits(decoder: &Decoder<'_>, x: &Tensor) -> Result<Tensor, ModelError> {
    Ok(decoder.logits(decoder.finish(x)?.matmul(&decoder.head()?.t()?)?)?)
}

/// Removes finished answers from their slots.
fn retire(owners: &mut [Option<Active>], whole: &mut dyn FnMut(usize, Answered)) {
    for owner in owners {
        if let Some(row) = owner.take_if(|row| row.draft.done()) {
            whole(row.number, row.draft.finish());
        }
    }
}
