//! Files and folders, as all of the program treats them: where runs lie ([`find`]), where a user's copies are kept
//! ([`cache()`], [`write_whole`]), when what is in a folder lasts ([`lasting`], [`write_lasting`]), and whether a word names a
//! path or an address ([`looks_like_a_path`], [`is_registry_address`]).
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
mod last;
mod name;

pub use cache::{cache, turn, write_whole};
pub use last::{lasting, lasting_up_to, lasting_whole, write_lasting};
pub use name::{is_registry_address, looks_like_a_path, settle};
