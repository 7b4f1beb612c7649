//! The language model, trainable end to end: one decoder for all families.
//!
//! It uses candle's own differentiable operations. The models of candle-transformers call fused
//! kernels without a backward pass: with them only the head would learn, without an error.

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

/// The result of a model operation.
pub(crate) type ModelResult<T> = Result<T, ModelError>;

/// Error of loading or running a model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("could not read `{}`: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A file could not be written.
    #[error("could not write `{}`: {reason}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A `config.json` has an unknown or impossible value.
    #[error("`{}`: {reason}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A file or folder is not of the expected kind, with a hint.
    #[error("`{}` {reason}", .path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The error: the rest of a sentence that begins with the path.
        reason: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// An error about one tensor of a file.
    #[error("{error} (in `{}`)", .path.display())]
    In {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: Box<ModelError>,
    },
    /// A tensor that the architecture needs is missing.
    #[error("the checkpoint has no tensor `{0}`")]
    Missing(String),
    /// A tensor's shape differs from the config's.
    #[error("tensor `{name}` has the shape {found:?}; the config makes it {expected:?}")]
    WrongShape {
        /// The tensor.
        name: String,
        /// Its shape in the checkpoint.
        found: Vec<usize>,
        /// Its shape according to the config.
        expected: Vec<usize>,
    },
    /// A tensor that the architecture does not use.
    #[error("the checkpoint has a tensor `{0}`, for which the config has no place")]
    Unused(String),
    /// A tensor is stored in a number format that cannot be trained.
    #[error("tensor `{name}` is stored as {stored}; bf16, f16 and f32 can be read")]
    WrongKind {
        /// The tensor.
        name: String,
        /// Its stored format.
        stored: String,
    },
    /// A token id outside the vocabulary.
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
    /// A device is missing or cannot be used by this program.
    #[error("`{device}` can't be used: {reason}")]
    Device {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// Sequences are longer than the model can compute here.
    #[error("sequences have up to {longest} tokens, and the model's {what} has {most}")]
    TooLong {
        /// Tokens of the longest sequence.
        longest: usize,
        /// Maximum number of tokens.
        most: usize,
        /// The part of the model that sets the limit.
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
    /// Returns a hint on how to fix the error, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Foreign { hint, .. } | Self::Device { hint, .. } => Some(hint),
            Self::In { error, .. } => error.hint(),
            _ => None,
        }
    }

    /// Returns the error of a file that could not be read.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: reason(error) }
    }

    /// Returns the error of a file or folder that could not be written.
    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::Write { path: path.to_owned(), reason: reason(error) }
    }

    /// Adds the path of the file to the error.
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
