//! Errors of reading and writing records.

use std::io;
use std::path::{Path, PathBuf};

use allot_base::Error;
use thiserror::Error;

/// An error of writing, reading or checking a record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A file could not be read or written.
    #[error("could not {verb} `{}`: {error}", .path.display())]
    File {
        /// The operation that failed.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A record exists at this path already.
    #[error("there is a record in `{}` already", .0.display())]
    There(PathBuf),
    /// A record's file was removed or moved while the run was writing to it.
    #[error("`{}` is gone: it was removed or moved while the run went on", .0.display())]
    Gone(PathBuf),
    /// A file is shorter than at the checkpoint.
    #[error("`{}` has {found} bytes, and the checkpoint counts on {counted}", .path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Actual length, in bytes.
        found: u64,
        /// Length at the checkpoint, in bytes.
        counted: u64,
    },
    /// A file's content differs from the checkpoint.
    #[error("`{}` is not what it was at the checkpoint: something in its first {counted} bytes was changed", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Length at the checkpoint, in bytes.
        counted: u64,
    },
    /// A record of an unsupported format.
    #[error("`{}` is a record of format {format}; this program reads format {}", .path.display(), crate::FORMAT)]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A record whose first line is not a head.
    #[error("`{}` does not begin with a head", .0.display())]
    NoHead(PathBuf),
    /// A file without a complete line.
    #[error("`{}` holds no record: not one whole line", .0.display())]
    Empty(PathBuf),
    /// An invalid line.
    #[error("`{}` line {number} is not a line of a record: {reason}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        number: usize,
        /// The reason why the line is invalid.
        reason: String,
    },
    /// Lines that contradict those before them.
    #[error("the record's lines of step {step}, round {round} do not fit those before them")]
    Inconsistent {
        /// The step.
        step: u32,
        /// The round.
        round: u32,
    },
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        match &error {
            RecordError::File { verb, path, error } => Self::file(verb, path, error),
            _ => Self::told(error.to_string(), error.hint()),
        }
    }
}

impl RecordError {
    /// Returns a hint for fixing the error, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::There(_) => Some("give another folder with --out, or remove it"),
            Self::Gone(_) => {
                Some("put the run's folder back where it was, if it was moved; else begin the run anew")
            }
            Self::Short { .. } | Self::Changed { .. } => {
                Some("put it back as it was, or remove that checkpoint to go on from an earlier one")
            }
            Self::Inconsistent { .. } => Some("the record was edited or damaged"),
            _ => None,
        }
    }

    /// Returns the error for a file that could not be read or written.
    pub(crate) fn file(verb: &'static str, path: &Path, error: io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), error }
    }
}
