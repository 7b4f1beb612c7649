//! Component files: size limit and hash.

use std::path::Path;

use allot_base::{Error, Result};
use sha2::{Digest, Sha256};

use crate::Kind;

/// The largest component file, in bytes. For comparison, a Python component has 18 MB.
pub const LARGEST: u64 = 128 << 20;

/// A file larger than [`LARGEST`]. Holds its size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file has {0} bytes; expected at most {LARGEST}")]
pub struct TooLarge(pub u64);

impl TooLarge {
    /// Fails if `bytes` exceeds [`LARGEST`].
    pub fn check(bytes: u64) -> std::result::Result<(), Self> {
        if bytes > LARGEST { Err(Self(bytes)) } else { Ok(()) }
    }
}

/// Reads a component's file. `kind` is used in error messages.
///
/// # Errors
///
/// The file does not exist, is not a regular file, or is too large.
pub fn read(path: &Path, kind: Kind) -> Result<Vec<u8>> {
    let about = std::fs::metadata(path).map_err(|e| Error::file("read", path, &e))?;
    let refused =
        |why: String| Error::new(format!("could not load {} `{}`: {why}", kind.noun(), path.display()));
    if !about.is_file() {
        return Err(refused("it is not a file".to_owned()));
    }
    TooLarge::check(about.len()).map_err(|error| refused(error.to_string()))?;
    std::fs::read(path).map_err(|e| Error::file("read", path, &e))
}

/// Returns the sha256 of bytes, in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}
