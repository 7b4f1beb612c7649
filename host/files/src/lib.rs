//! Files and folders, as all of the program treats them: where runs lie ([`find`]), where a user's copies are kept
//! ([`cache()`], [`write_whole`]), when what is in a folder lasts ([`lasting`]), and whether a word names a path or an address
//! ([`looks_like_a_path`], [`is_registry_address`]).
//!
//! What is in a file is for others to know: nothing is read here.
//!
//! ```
//! use allot_files::{find, is_registry_address, looks_like_a_path};
//!
//! assert!(looks_like_a_path("./mine.wasm") && !looks_like_a_path("my-policy"));
//! assert!(is_registry_address("oci://ghcr.io/you/policy:0.1.0"));
//! assert!(find::natural("seed-9", "seed-10").is_lt());
//! ```

pub mod find;

mod cache;
mod name;

use std::fs::File;
use std::path::Path;

use allot_error::{Error, Result};

pub use cache::{cache, turn, write_whole};
pub use name::{is_registry_address, looks_like_a_path, settle};

/// Makes what a folder holds last. On Unix a name is on the disk once its folder is.
pub fn lasting(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::file("write", folder, &e))
}
