//! Foundation of all crates of the program: errors for users, and common file operations.
//!
//! An [`Error`] has a message that says what went wrong and where, hints for fixing it, and notes with
//! further places to look. Each library implements `From` for its own error type, so that a message needs
//! no heavy dependency. [`panics`] turns third-party panics into messages. [`did_you_mean`] suggests the
//! known name nearest to an unknown one. The crate prints nothing.
//!
//! File operations: runs below a folder ([`find`]), the user's cache ([`cache()`]), files that are
//! written completely or not at all ([`write_whole`], [`replace`]), writes that survive a power failure
//! ([`lasting`], [`write_lasting`]), and whether an argument is a path or a registry address
//! ([`looks_like_a_path`], [`is_registry_address`]). File formats belong to other crates.
//!
//! ```
//! use allot_base::{Error, did_you_mean, find, is_registry_address, looks_like_a_path};
//!
//! let near = did_you_mean("max_token", ["max_tokens", "temperature"]);
//! let error = Error::new("unknown field `max_token`").hint(near);
//! assert_eq!(error.report(), "error: unknown field `max_token`\n\nhint: did you mean `max_tokens`?");
//!
//! assert!(looks_like_a_path("./mine.wasm") && !looks_like_a_path("my-policy"));
//! assert!(is_registry_address("oci://ghcr.io/you/policy:0.1.0"));
//! assert!(find::natural("seed-9", "seed-10").is_lt());
//! ```

pub mod find;
pub mod panics;

mod cache;
mod error;
mod exit;
mod last;
mod names;
mod path;
mod whole;

pub use cache::{cache, turn};
pub use error::{Error, Result, count, signals};
pub use exit::Exit;
pub use last::{lasting, lasting_up_to, lasting_whole, write_lasting};
pub use names::{did_you_mean, listed, nearest};
pub use path::{absolute, is_registry_address, looks_like_a_path, settle, settle_command};
pub use whole::{replace, write_whole};
