//! What was computed of a sequence: of what it begins with, which prompts share, of its prompt, which answers share, and of the
//! tokens after it.

use std::sync::Arc;

use super::attention::Cache;

/// What was computed of the tokens that several prompts begin with.
#[derive(Default)]
pub struct Opening {
    pub tokens: usize,
    /// Keys and values of each block, `[T, 2 K]`. Each prompt's cache has a copy: what a token reads is in one piece then.
    pub blocks: Vec<Vec<f32>>,
}

impl Opening {
    /// Puts a block's keys and values first in a cache.
    pub fn put(&self, layer: usize, cache: Cache, laid: (&mut [f32], &mut [f32])) {
        let width = cache.heads.kv * cache.heads.width;
        if let Some(rows) = self.blocks.get(layer) {
            cache.put(0, rows.chunks_exact(2 * width), [0..width, width..2 * width], laid);
        }
    }
}

/// The result of reading a prompt.
pub struct Prefix {
    /// Keys and values of each block, in a cache for `tokens` tokens.
    pub blocks: Vec<Caches>,
    pub tokens: usize,
    /// Logits after the prompt's last token, `[V]`.
    pub logits: Vec<f32>,
}

/// Keys and values in the layout of [`Cache`]. An answer's has all blocks, one after the other.
pub type Caches = (Vec<f32>, Vec<f32>);

/// What was computed of a prompt and the tokens after it.
pub struct Parked {
    pub prefix: Arc<Prefix>,
    /// Keys and values of the tokens after the prompt.
    pub keys: Vec<f32>,
    pub values: Vec<f32>,
    /// Layout of one block's keys and values.
    pub cache: Cache,
    /// Number of tokens after the prompt that were read.
    pub read: usize,
    /// The token that was generated last and not read yet.
    pub newest: Option<u32>,
}
