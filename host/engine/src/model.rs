//! The language model, trainable end to end: one decoder for Llama (SmolLM2), Qwen2 and Qwen3.
//!
//! Made of candle's own differentiable operations. candle-transformers' models call fused kernels
//! that have no backward pass: there only the head would learn, and nothing would say so.

mod checkpoint;
mod decoder;
mod loss;
mod optimizer;
mod shape;

use std::path::PathBuf;

use thiserror::Error;

pub use checkpoint::Checkpoint;
pub use decoder::{Decoder, Input, Output};
pub use loss::{Clip, clipped, token_log_probs};
pub use optimizer::{AdamW, AdamWConfig};
pub use shape::{Family, Rope, Shape};

/// Why a model can't be loaded or run.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("could not read `{}`: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A `config.json` that says something unknown or impossible.
    #[error("`{}`: {reason}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A tensor that the architecture needs is not there.
    #[error("the checkpoint has no tensor `{0}`")]
    Missing(String),
    /// A tensor of another shape than the config says.
    #[error("tensor `{name}` has the shape {found:?}; the config makes it {expected:?}")]
    WrongShape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the config gives it.
        expected: Vec<usize>,
    },
    /// A token past the vocabulary.
    #[error("token {token} is past the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        vocabulary: usize,
    },
    /// The tensor library failed.
    #[error("{0}")]
    Tensor(#[from] candle_core::Error),
}
