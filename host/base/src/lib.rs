//! What every crate of the program stands on: errors as people read them, and files as all of the program treats them.
//!
//! An [`Error`] is one sentence that says what went wrong and where, a hint where there is something to do, and notes
//! that say where things are. A library's own error becomes one where that library is: it implements `From` there, so
//! that nothing heavy is built for a sentence. Panics of others' code become a sentence in [`panics`]; an unknown name
//! gets the nearest known one from [`did_you_mean`]. Nothing is printed here, and no exit code is chosen.
//!
//! Files: runs below a folder ([`find`]), the user's cached copies ([`cache()`], [`write_whole`]), writes that survive a
//! power failure ([`lasting`], [`write_lasting`]), and whether an argument names a path or a registry's address
//! ([`looks_like_a_path`], [`is_registry_address`]). The formats of files are other crates' business.
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

pub use cache::{cache, turn, write_whole};
pub use error::{Error, Result, count, signals};
pub use exit::Exit;
pub use last::{lasting, lasting_up_to, lasting_whole, write_lasting};
pub use names::{did_you_mean, listed, nearest};
pub use path::{is_registry_address, looks_like_a_path, settle};
