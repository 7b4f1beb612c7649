//! What can go wrong with a record.

use std::io;
use std::path::{Path, PathBuf};

use allot_base::Error;
use thiserror::Error;

/// Why a record could not be written, read or believed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A file could not be read or written.
    #[error("could not {verb} `{}`: {error}", .path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// There is a record in this place already.
    #[error("there is a record in `{}` already", .0.display())]
    There(PathBuf),
    /// A record's file went away while lines were written into it.
    #[error("`{}` is gone: it was removed or moved while the run went on", .0.display())]
    Gone(PathBuf),
    /// A file is shorter than a checkpoint says.
    #[error("`{}` has {found} bytes, and the checkpoint counts on {counted}", .path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it should have.
        counted: u64,
    },
    /// A file that is not what it was.
    #[error("`{}` is not what it was at the checkpoint: something in its first {counted} bytes was changed", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes that it had at the checkpoint.
        counted: u64,
    },
    /// A record of another format.
    #[error("`{}` is a record of format {format}; this program reads format {}", .path.display(), crate::FORMAT)]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A record whose first line is something else.
    #[error("`{}` does not begin with a head", .0.display())]
    NoHead(PathBuf),
    /// A file without one whole line.
    #[error("`{}` holds no record: not one whole line", .0.display())]
    Empty(PathBuf),
    /// A line that is none.
    #[error("`{}` line {number} is not a line of a record: {reason}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        number: usize,
        /// Why it is none.
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
    /// What to do about it, where there is something to do.
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

    /// A file that could not be read or written.
    pub(crate) fn file(verb: &'static str, path: &Path, error: io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), error }
    }
}
