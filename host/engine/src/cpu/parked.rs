//! What was computed of a sequence: of its prompt, which answers share, and of the tokens after it.

use std::sync::Arc;

use super::attention::Cache;

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
