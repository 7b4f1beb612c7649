//! Sampling many answers at once on a device.
//!
//! A prompt is read once for all of its answers; a finished answer leaves its slot of the caches to the next.
//! How the tokens of the answers on their way are made is left to [`Steps`]: by candle's operations
//! (`plain.rs`), or by kernels of our own (`fused.rs`).
//!
//! A device's sums depend on the shape of what it is given, so that a row's numbers may differ in their last
//! bits with what is sampled beside it. What is drawn with is the same whatever happens: an answer's own
//! seed, in [`Draft`], as on the CPU.
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

/// Tokens of prompts that are read at a time, padding included; a longer prompt is read alone.
const AT_ONCE: usize = 1 << 13;

/// What sampling needs to know.
pub struct Decode<'a> {
    /// The weights to compute with.
    pub weights: &'a Checkpoint,
    /// What prompts are read by.
    pub learning: &'a dyn Learning,
    /// Looked at between two tokens, or several.
    pub interrupt: &'a Interrupt,
}

/// What was read of a prompt.
pub struct Prefix {
    /// Keys and values of each block, `[1, K, T, E]` each.
    pub blocks: Vec<(Tensor, Tensor)>,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// What it says of the next token, `[V]`.
    pub logits: Tensor,
}

/// An answer on its way.
pub struct Active {
    number: usize,
    /// What was read of its prompt.
    pub prefix: Arc<Prefix>,
    /// What there is of it.
    pub draft: Draft,
}

/// Slots of the caches, and what they must hold.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Answers at a time.
    pub slots: usize,
    /// Most tokens of a prompt and an answer that are read. An answer's last token never is.
    pub whole: usize,
    /// Most tokens of an answer that are read.
    #[cfg(any(feature = "cuda", test))]
    pub answer: usize,
}

/// How tokens are made. `owners` are the answers in the slots of the caches.
pub trait Steps {
    /// Takes up the answers that are in these slots now.
    fn begin(&mut self, owners: &mut [Option<Active>], slots: &[usize]) -> Result<(), ModelError>;

    /// One more token for every answer that is not at its end, or several.
    fn advance(&mut self, owners: &mut [Option<Active>]) -> Result<(), ModelError>;

    /// Removes free slots once they are half of all: at the end, when the longest
    /// answers are awaited, every further token would cost as much as for all of them.
    fn shrink(&mut self, owners: &mut Vec<Option<Active>>) -> Result<(), ModelError>;
}

impl Extent {
    /// For these requests, so many at a time.
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
    /// Samples an answer to each request, and hands it over when it is whole, with its request's number.
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
            // A fresh answer may have its first token by now, which may have been its last.
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

    /// Gives free slots to the next requests. Gives the first request that is left.
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
        // One read for each run of one prompt; the last prompt may go on from the call before.
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

    /// Reads prompts, of which the longest has so many tokens.
    fn read(&self, prompts: &[&[u32]], longest: usize) -> Result<Vec<Prefix>, ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let longest = longest.next_multiple_of(self.learning.even());
        let (_, device) = kind(self.weights)?;
        // Padding comes last, where nothing that counts looks at it.
        let mut tokens = vec![0_u32; prompts.len() * longest];
        for (row, prompt) in tokens.chunks_exact_mut(longest).zip(prompts) {
            row[..prompt.len()].copy_from_slice(prompt);
        }
        let tokens = Tensor::from_vec(tokens, (prompts.len(), longest), &device)?;
        let way = PassTokens::new(self.learning, self.weights, longest, &device)?;
        let own = |all: &Tensor, i: usize| all.narrow(0, i, 1)?.narrow(2, 0, prompts[i].len())?.contiguous();

        let mut x = decoder.embed(&tokens)?;
        let mut blocks: Vec<Vec<(Tensor, Tensor)>> = prompts.iter().map(|_| Vec::new()).collect();
        for layer in 0..self.weights.shape.layers {
            let made = self.learning.block(self.weights, layer, &x, &way, false)?;
            for (i, blocks) in blocks.iter_mut().enumerate() {
                blocks.push((own(&made.cache.0, i)?, own(&made.cache.1, i)?));
            }
            x = made.stream;
        }
        let last: Vec<u32> =
            prompts.iter().enumerate().map(|(i, p)| (i * longest + p.len() - 1) as u32).collect();
        let last = Tensor::from_vec(last, prompts.len(), &device)?;
        let logits = logits(&decoder, &x.flatten(0, 1)?.index_select(&last, 0)?)?;
        let prefix =
            |(i, blocks): (usize, _)| Ok(Prefix { blocks, tokens: prompts[i].len(), logits: logits.get(i)? });
        blocks.into_iter().enumerate().map(prefix).collect()
    }
}

/// What kind of number a model computes in, and where.
pub fn kind(weights: &Checkpoint) -> Result<(DType, Device), ModelError> {
    let head = Decoder::frozen(weights).head()?;
    Ok((head.dtype(), head.device().clone()))
}

/// The final norm and the head: `[R, D]` to `[R, V]`.
pub fn logits(decoder: &Decoder<'_>, x: &Tensor) -> Result<Tensor, ModelError> {
    Ok(decoder.logits(decoder.finish(x)?.matmul(&decoder.head()?.t()?)?)?)
}

/// Takes finished answers out of their slots.
fn retire(owners: &mut [Option<Active>], whole: &mut dyn FnMut(usize, Answered)) {
    for owner in owners {
        if let Some(row) = owner.take_if(|row| row.draft.done()) {
            whole(row.number, row.draft.finish());
        }
    }
}
