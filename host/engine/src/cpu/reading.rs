//! Reading tokens that are given: prompts, and what an environment says. Prompts may begin alike, with the same examples or
//! the same message of a system. That beginning is read once, and each prompt is read after it.
//!
//! Tokens that are read together or one by one give the same bits, so neither the beginning nor a turn before changes any.

use super::attention::{Cache, Past, Span, attend_after};
use super::block::{Block, KeptBlock, Scratch};
use super::decode::Decode;
use super::head::finish;
use super::kernels::{norm, rotate};
use super::parked::{Opening, Parked, Prefix};

/// A block's work on the stream of all tokens that are read, `[N, D]`.
type Through<'a> = &'a mut dyn FnMut(&Block<'_>, &mut [f32], &mut KeptBlock, &mut Scratch);

impl Decode<'_> {
    /// Reads what all prompts begin with.
    pub fn open(&self, tokens: &[u32]) -> Opening {
        let mut blocks = Vec::with_capacity(self.weights.arena.blocks.len());
        if !tokens.is_empty() {
            self.stream(tokens, 0, self.threads, &mut |block, x, kept, scratch| {
                block.forward(x, kept, scratch);
                let heads = self.weights.heads();
                let past = heads.query * heads.width..heads.row();
                blocks.push(
                    kept.qkv()
                        .chunks_exact(heads.row())
                        .flat_map(|row| &row[past.clone()])
                        .copied()
                        .collect(),
                );
            });
        }
        Opening { tokens: tokens.len(), blocks }
    }

    /// Reads a prompt, which begins with the opening's tokens and has at least one more.
    pub fn read(&self, prompt: &[u32], opening: &Opening, threads: usize) -> Prefix {
        let cache = Cache::new(self.weights.heads(), prompt.len());
        let mut blocks = Vec::with_capacity(self.weights.arena.blocks.len());
        let own = &prompt[opening.tokens..];
        let x = self.stream(own, opening.tokens, threads, &mut |block, x, kept, scratch| {
            let (mut keys, mut values) = (vec![0.0; cache.columns()], vec![0.0; cache.lines()]);
            opening.put(block.layer, cache, (&mut keys, &mut values));
            let none = Past { cache: Cache::new(cache.heads, 0), keys: &[], values: &[], seen: 0..0 };
            follow(block, (x, kept, scratch), none, (cache, opening.tokens), (&mut keys, &mut values));
            blocks.push((keys, values));
        });
        Prefix { blocks, tokens: prompt.len(), logits: self.logits(&x) }
    }

    /// Reads tokens after those of a row. Returns the logits of the next one.
    pub fn read_on(&self, past: &mut Parked, tokens: &[u32], threads: usize) -> Vec<f32> {
        let Parked { prefix, keys, values, cache, read, .. } = past;
        let (prompt, of_prompt) = (&prefix.blocks, Cache::new(cache.heads, prefix.tokens));
        let x = self.stream(tokens, prefix.tokens + *read, threads, &mut |block, x, kept, scratch| {
            let (layer, seen) = (block.layer, 0..prefix.tokens);
            let before = Past { cache: of_prompt, keys: &prompt[layer].0, values: &prompt[layer].1, seen };
            let keys = &mut keys[layer * cache.columns()..][..cache.columns()];
            let values = &mut values[layer * cache.lines()..][..cache.lines()];
            follow(block, (x, kept, scratch), before, (*cache, *read), (keys, values));
        });
        *read += tokens.len();
        self.logits(&x)
    }

    /// Takes tokens, the first of which has this position, through all blocks. Returns the stream after them, `[N, D]`.
    fn stream(&self, tokens: &[u32], position: usize, threads: usize, through: Through<'_>) -> Vec<f32> {
        let arena = self.weights.arena;
        let d = arena.shape.hidden;
        let mut x = vec![0.0; tokens.len() * d];
        for (x, token) in x.chunks_exact_mut(d).zip(tokens) {
            self.weights.embed(*token, x);
        }
        let (mut kept, mut scratch) = (KeptBlock::default(), Scratch::default());
        let spans = &[Span { prompt: 0..position, own: 0..tokens.len() }];
        for layer in 0..arena.blocks.len() {
            let block = Block { weights: self.weights, layer, rope: self.rope, spans, threads };
            through(&block, &mut x, &mut kept, &mut scratch);
        }
        x
    }

    /// Returns the logits after the last token of a stream, `[N, D]`.
    fn logits(&self, x: &[f32]) -> Vec<f32> {
        let arena = self.weights.arena;
        let d = arena.shape.hidden;
        let (mut last, mut scale) = (vec![0.0; d], [0.0]);
        let weight = &self.weights.gain(&arena.norm);
        norm(&x[x.len() - d..], weight, arena.shape.epsilon as f32, &mut last, &mut scale);
        let mut logits = vec![0.0; arena.shape.vocabulary];
        self.laid.head.product(&last, &mut logits, false);
        finish(&arena.shape.variant, &mut logits);
        logits
    }
}

/// Takes tokens that follow others through a block, and puts their keys and values after the `first` ones of a cache.
fn follow(
    block: &Block<'_>,
    (x, kept, scratch): (&mut [f32], &mut KeptBlock, &mut Scratch),
    before: Past<'_>,
    (cache, first): (Cache, usize),
    (keys, values): (&mut [f32], &mut [f32]),
) {
    block.through(x, kept, scratch, |heads, qkv, mixed, log_sums, scratch| {
        block.turn(qkv, rotate);
        cache.put(first, qkv.chunks_exact(heads.row()), heads.past(), (keys, values));
        let own = Past { cache, keys, values, seen: 0..first + qkv.len() / heads.row() };
        attend_after(heads, qkv, [before, own], (mixed, log_sums), scratch, block.threads);
    });
}
