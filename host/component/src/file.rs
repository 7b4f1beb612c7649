//! A component as a file: how large it may be, and its hash.

use sha2::{Digest, Sha256};
use thiserror::Error;

/// The largest file that is taken for a policy, in bytes. A Python component has 18 MB.
pub const LARGEST: u64 = 128 << 20;

/// More bytes than anyone means to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the file has {0} bytes; a policy has {LARGEST} at most")]
pub struct TooLarge(pub u64);

impl TooLarge {
    /// Whether so many bytes are too many.
    pub fn check(bytes: u64) -> Result<(), Self> {
        if bytes > LARGEST { Err(Self(bytes)) } else { Ok(()) }
    }
}

/// The sha256 of bytes, in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}
