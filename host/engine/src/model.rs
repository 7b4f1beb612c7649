//! The language model, trainable end to end: one decoder for all families.
//!
//! Made of candle's own differentiable operations. candle-transformers' models call fused kernels
//! that have no backward pass: there only the head would learn, and nothing would say so.

mod checkpoint;
mod config;
mod decoder;
mod family;
pub mod file;
mod gguf;
pub(crate) mod operations;
mod rope;
pub(crate) mod safetensors;
mod shape;

use std::path::{Path, PathBuf};

use allot_base::Error;
use thiserror::Error;

pub(crate) use checkpoint::dtype;
pub use checkpoint::{Checkpoint, Precision};
#[cfg(any(feature = "cuda", test))]
pub(crate) use decoder::Projection;
pub(crate) use decoder::RopeTables;
pub use decoder::{Decoder, Output, token_log_probs};
pub use family::{Activation, Experts, FAMILIES, Family, HeadNorms, Norms, Variant};
pub use gguf::Gguf;
pub use rope::{Factor, Llama3, Rope, Scaling, Yarn};
pub use shape::{By, Shape, SpecialIds};

/// The result of something that a model does.
pub(crate) type ModelResult<T> = Result<T, ModelError>;

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
    /// A file could not be written.
    #[error("could not write `{}`: {reason}", .path.display())]
    Write {
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
    /// A file or folder that is not what it should be, and what to do about it.
    #[error("`{}` {reason}", .path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong: the rest of a sentence that begins with the path.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// Something about one tensor of a file.
    #[error("{error} (in `{}`)", .path.display())]
    In {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        error: Box<ModelError>,
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
    /// A tensor that the architecture has no use for.
    #[error("the checkpoint has a tensor `{0}`, for which the config has no place")]
    Unused(String),
    /// A tensor of numbers that are no weights to train.
    #[error("tensor `{name}` is stored as {stored}; bf16, f16 and f32 can be read")]
    WrongKind {
        /// The tensor.
        name: String,
        /// What it is stored as.
        stored: String,
    },
    /// A token past the vocabulary.
    #[error("token {token} is past the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        vocabulary: usize,
    },
    /// Threads could not be started.
    #[error("could not start threads: {0}")]
    Threads(String),
    /// A device that is not there, or can't be used by this program.
    #[error("`{device}` can't be used: {reason}")]
    Device {
        /// The device.
        device: String,
        /// Why not.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// Sequences longer than a model can compute here.
    #[error("sequences have up to {longest} tokens, and the model's {what} has {most}")]
    TooLong {
        /// Tokens of the longest sequence.
        longest: usize,
        /// Tokens that there may be.
        most: usize,
        /// What says so.
        what: &'static str,
    },
    /// The tensor library failed.
    #[error("{0}")]
    Tensor(#[from] candle_core::Error),
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Self::told(error.to_string(), error.hint())
    }
}

impl ModelError {
    /// What to do about it, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Foreign { hint, .. } | Self::Device { hint, .. } => Some(hint),
            Self::In { error, .. } => error.hint(),
            _ => None,
        }
    }

    /// A file that could not be read.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: reason(error) }
    }

    /// A file or folder that could not be written.
    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::Write { path: path.to_owned(), reason: reason(error) }
    }

    /// The same, said with the file that it is about.
    fn within(self, path: &Path) -> Self {
        Self::In { path: path.to_owned(), error: Box::new(self) }
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        _ => error.to_string(),
    }
}
