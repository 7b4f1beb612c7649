//! Sampling many answers at once on a device.
//!
//! Keys and values lie in one cache for each block, made once for the longest prompt and answer, and are
//! written in place. A prompt is read once and what was read is copied into the rows of its answers; a
//! finished answer leaves its row to the next. Rows have positions and masks of their own.
//!
//! A device's sums depend on the shape of what it is given, so that a row's numbers may differ in their last
//! bits with what is sampled beside it. What is drawn with is the same whatever happens: an answer's own
//! seed, in [`Draft`], as on the CPU.
//!
//! Shapes: R rows, S cached tokens, K key and value heads, E head, V vocabulary.

use std::rc::Rc;

use candle_core::{DType, Result as Computed, Tensor};
use rayon::prelude::*;

use super::batch::{causal, known};
use crate::core::{Answered, Request};
use crate::draft::Draft;
use crate::model::{Checkpoint, Decoder, ModelError, attend};

/// Tokens of prompts that are read at a time, padding included; a longer prompt is read alone.
const AT_ONCE: usize = 1 << 13;

/// What sampling needs to know.
pub struct Decode<'a> {
    /// The weights to compute with.
    pub weights: &'a Checkpoint,
    /// Tokens that end an answer.
    pub stops: &'a [u32],
    /// Answers at a time.
    pub rows: usize,
}

/// What was read of a prompt.
struct Prefix {
    /// Keys and values of each block, `[1, K, T, E]` each.
    blocks: Vec<(Tensor, Tensor)>,
    tokens: usize,
    /// What it says of the next token, `[V]`.
    logits: Vec<f32>,
}

/// An answer on its way.
struct Row {
    number: usize,
    /// Tokens in the cache.
    cached: usize,
    draft: Draft,
}

/// Rows of the caches, and who has them.
struct Rows {
    /// Keys and values of each block, `[R, K, S, E]` each.
    blocks: Vec<(Tensor, Tensor)>,
    owners: Vec<Option<Row>>,
}

impl Decode<'_> {
    /// Samples an answer to each request, and hands it over when it is whole, with its request's number.
    pub fn run(
        &self,
        requests: &[Request<'_>],
        whole: &mut dyn FnMut(usize, Answered),
    ) -> Result<(), ModelError> {
        if requests.is_empty() {
            return Ok(());
        }
        let vocabulary = self.weights.shape.vocabulary;
        requests.iter().try_for_each(|r| known(r.prompt, vocabulary))?;
        let mut rows = self.rows_for(requests)?;
        let (mut next, mut shared) = (0, None);
        loop {
            // A fresh row has its first token by now, which may have been its last.
            while next < requests.len() && rows.owners.iter().any(Option::is_none) {
                next = self.admit(requests, next, &mut rows, &mut shared)?;
                rows.retire(whole);
            }
            rows.shrink()?;
            if rows.owners.iter().all(Option::is_none) {
                return Ok(());
            }
            self.advance(&mut rows)?;
            rows.retire(whole);
        }
    }

    fn rows_for(&self, requests: &[Request<'_>]) -> Result<Rows, ModelError> {
        let shape = &self.weights.shape;
        // An answer's last token is never read.
        let room = |r: &Request<'_>| r.prompt.len() + (r.sampling.max_tokens as usize).saturating_sub(1);
        let longest = requests.iter().map(room).max().unwrap_or(0);
        let count = self.rows.clamp(1, requests.len());
        let (kind, device) = self.kind()?;
        let cache = || Tensor::zeros((count, shape.kv_heads, longest, shape.head), kind, &device);
        let blocks = (0..shape.layers).map(|_| Ok((cache()?, cache()?))).collect::<Computed<Vec<_>>>()?;
        Ok(Rows { blocks, owners: (0..count).map(|_| None).collect() })
    }

    /// What kind of number the model computes in, and where.
    fn kind(&self) -> Result<(DType, candle_core::Device), ModelError> {
        let head = Decoder::frozen(self.weights).head()?;
        Ok((head.dtype(), head.device().clone()))
    }

    /// Gives free rows to the next requests, each with its first token drawn. Gives the first request that
    /// is left.
    fn admit<'r>(
        &self,
        requests: &[Request<'r>],
        next: usize,
        rows: &mut Rows,
        shared: &mut Option<(&'r [u32], Rc<Prefix>)>,
    ) -> Result<usize, ModelError> {
        let free: Vec<usize> = (0..rows.owners.len()).filter(|i| rows.owners[*i].is_none()).collect();
        let taken = &requests[next..requests.len().min(next + free.len())];
        // One read for each run of one prompt; the last prompt may go on from the call before.
        let mut prompts: Vec<&'r [u32]> = taken.iter().map(|r| r.prompt).collect();
        prompts.dedup();
        let known = shared.take().filter(|(old, _)| prompts.first() == Some(old));
        let skip = usize::from(known.is_some());
        let mut read: Vec<Rc<Prefix>> = known.into_iter().map(|(_, prefix)| prefix).collect();
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
            read.extend(self.read(batch, longest)?.into_iter().map(Rc::new));
            rest = more;
        }
        let mut which = 0;
        for (i, (request, slot)) in taken.iter().zip(free).enumerate() {
            which += usize::from(i > 0 && request.prompt != taken[i - 1].prompt);
            let prefix = &read[which];
            rows.begin(slot, prefix)?;
            let mut draft = Draft::new(request);
            let mut logits = prefix.logits.clone();
            draft.cool(&mut logits);
            draft.take(&logits, self.stops);
            rows.owners[slot] = Some(Row { number: next + i, cached: prefix.tokens, draft });
        }
        *shared = prompts.last().copied().zip(read.pop());
        Ok(next + taken.len())
    }

    /// Reads prompts, of which the longest has so many tokens.
    fn read(&self, prompts: &[&[u32]], longest: usize) -> Result<Vec<Prefix>, ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let (_, device) = self.kind()?;
        // Padding comes last, where nothing that counts looks at it.
        let mut tokens = vec![0_u32; prompts.len() * longest];
        for (row, prompt) in tokens.chunks_exact_mut(longest).zip(prompts) {
            row[..prompt.len()].copy_from_slice(prompt);
        }
        let tokens = Tensor::from_vec(tokens, (prompts.len(), longest), &device)?;
        let rotations = decoder.rope(&Tensor::arange(0, longest as u32, &device)?.unsqueeze(0)?)?;
        let bias = causal(longest, &device)?;
        let own = |all: &Tensor, i: usize| all.narrow(0, i, 1)?.narrow(2, 0, prompts[i].len())?.contiguous();

        let mut x = decoder.embed(&tokens)?;
        let mut blocks: Vec<Vec<(Tensor, Tensor)>> = prompts.iter().map(|_| Vec::new()).collect();
        for layer in 0..self.weights.shape.layers {
            x = decoder.block(layer, &x, &rotations, |q, k, v| {
                for (i, blocks) in blocks.iter_mut().enumerate() {
                    blocks.push((own(k, i)?, own(v, i)?));
                }
                attend(q, k, v, &bias)
            })?;
        }
        let last: Vec<u32> =
            prompts.iter().enumerate().map(|(i, p)| (i * longest + p.len() - 1) as u32).collect();
        let last = Tensor::from_vec(last, prompts.len(), &device)?;
        let logits = Self::logits(&decoder, &x.flatten(0, 1)?.index_select(&last, 0)?)?;
        let rows = logits.chunks_exact(self.weights.shape.vocabulary).zip(prompts).zip(blocks);
        let prefix = |((logits, prompt), blocks): ((&[f32], &&[u32]), _)| Prefix {
            blocks,
            tokens: prompt.len(),
            logits: logits.to_vec(),
        };
        Ok(rows.map(prefix).collect())
    }

    /// One more token for every row. Rows that nobody has are computed along, and looked at by no one.
    fn advance(&self, rows: &mut Rows) -> Result<(), ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let (_, device) = self.kind()?;
        let shape = &self.weights.shape;
        let count = rows.owners.len();
        let newest: Vec<u32> =
            rows.owners.iter().map(|r| r.as_ref().map_or(0, |r| r.draft.newest())).collect();
        let places: Vec<u32> =
            rows.owners.iter().map(|r| r.as_ref().map_or(0, |r| r.cached as u32)).collect();
        let seen = 1 + places.iter().max().copied().unwrap_or(0);

        let tokens = Tensor::from_vec(newest, (count, 1), &device)?;
        let places = Tensor::from_vec(places, (count, 1), &device)?;
        let rotations = decoder.rope(&places)?;
        let places = places.reshape((count, 1, 1, 1))?;
        // Where each row's key and value go, `[R, K, 1, E]`, and how far it may look, `[R, 1, 1, S]`.
        let into = places.broadcast_as((count, shape.kv_heads, 1, shape.head))?.contiguous()?;
        let ahead =
            Tensor::arange(0, seen, &device)?.reshape((1, 1, 1, seen as usize))?.broadcast_gt(&places)?;
        let bias = (ahead.to_dtype(DType::F32)? * -1e9)?;

        let mut x = decoder.embed(&tokens)?;
        for (layer, (keys, values)) in rows.blocks.iter().enumerate() {
            x = decoder.block(layer, &x, &rotations, |q, k, v| {
                keys.scatter_set(&into, k, 2)?;
                values.scatter_set(&into, v, 2)?;
                let seen = |cache: &Tensor| cache.narrow(2, 0, seen as usize);
                attend(q, &seen(keys)?, &seen(values)?, &bias)
            })?;
        }
        // All logits go to the host, where every core draws alike. Drawing on the device would save the
        // copy, 4 bytes a row and token of the vocabulary.
        let mut logits = Self::logits(&decoder, &x.squeeze(1)?)?;
        let work = logits.par_chunks_exact_mut(shape.vocabulary).zip(rows.owners.par_iter_mut());
        work.for_each(|(logits, owner)| {
            if let Some(row) = owner {
                row.cached += 1;
                row.draft.cool(logits);
                row.draft.take(logits, self.stops);
            }
        });
        Ok(())
    }

    /// The final norm and the head, `[R, D]` to `[R, V]`, on the host.
    fn logits(decoder: &Decoder<'_>, x: &Tensor) -> Result<Vec<f32>, ModelError> {
        let logits = decoder.finish(x)?.matmul(&decoder.head()?.t()?)?;
        Ok(logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }
}

impl Rows {
    /// Copies what was read of a prompt into a row.
    fn begin(&self, slot: usize, prefix: &Prefix) -> Computed<()> {
        for ((keys, values), (k, v)) in self.blocks.iter().zip(&prefix.blocks) {
            keys.narrow(0, slot, 1)?.slice_set(k, 2, 0)?;
            values.narrow(0, slot, 1)?.slice_set(v, 2, 0)?;
        }
        Ok(())
    }

    /// Takes finished answers out of their rows.
    fn retire(&mut self, whole: &mut dyn FnMut(usize, Answered)) {
        for owner in &mut self.owners {
            if let Some(row) = owner.take_if(|row| row.draft.done()) {
                whole(row.number, row.draft.finish());
            }
        }
    }

    /// Gives up rows that nobody has any more, once they are half of all: at the end, when the longest
    /// answers are awaited, every further token would cost as much as for all rows.
    fn shrink(&mut self) -> Computed<()> {
        let held: Vec<u32> =
            (0..self.owners.len()).filter(|i| self.owners[*i].is_some()).map(|i| i as u32).collect();
        if held.is_empty() || held.len() * 2 > self.owners.len() {
            return Ok(());
        }
        let (keys, _) = &self.blocks[0];
        let held = Tensor::new(held, keys.device())?;
        for (keys, values) in &mut self.blocks {
            *keys = keys.index_select(&held, 0)?;
            *values = values.index_select(&held, 0)?;
        }
        self.owners.retain(Option::is_some);
        Ok(())
    }
}
