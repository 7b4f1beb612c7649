//! Errors as people read them: one sentence that says what went wrong and where, a hint where there is something to
//! do, and notes that say where things are.
//!
//! Every crate of the program ends in a [`Error`]. A library's own error becomes one where that library is: it
//! implements `From` there, so that nothing heavy is built for a sentence. What others' code panics on becomes a
//! sentence in [`panics`]; an unknown name gets the nearest known one by [`did_you_mean`]. Nothing is printed
//! here, and no exit code is chosen.
//!
//! ```
//! use allot_error::{Error, did_you_mean};
//!
//! let near = did_you_mean("max_token", ["max_tokens", "temperature"]);
//! let error = Error::new("unknown field `max_token`").hint(near);
//! assert_eq!(error.report(), "error: unknown field `max_token`\n\nhint: did you mean `max_tokens`?");
//! ```

pub mod panics;

mod error;
mod exit;
mod names;

pub use error::{Error, Result, count, signals};
pub use exit::Exit;
pub use names::{did_you_mean, listed, nearest};
