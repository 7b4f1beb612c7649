//! Runs generated Python in a Wasm sandbox, and grades it.
//!
//! Other projects run this code by `exec` in a separate process, or on a paid service. Here it runs in
//! CPython for WASI, without files, clock, network or other processes. Its limits are a number of
//! instructions and of bytes of memory, so an answer that is too slow here is too slow on every machine.
//!
//! - [`build`]: the supported builds of CPython, pinned by hash, and the modules made from them
//! - [`Interpreter`]: a started interpreter, of which each answer gets a fresh copy
//! - [`library`]: pure Python packages, imported before the first answer; [`math`]: math-verify
//! - [`guest`]: the WASI environment of a guest
//! - [`trial`]: a problem's tests, or its inputs and outputs, and the outcome of an answer; [`text`]: the
//!   program in an answer, and the comparison of outputs
//!
//! ```no_run
//! use allot_judges::python::trial::Trial;
//! use allot_judges::python::{Interpreter, Limits};
//!
//! let python = Interpreter::open("python-3.12.0.wasm".as_ref(), None).unwrap();
//! let trial = Trial::of(r#"{"fn_name": "double", "inputs": [[2]], "outputs": [4]}"#).unwrap();
//! let limits = Limits { fuel: 10_000_000_000, memory: 256 << 20 };
//! assert!(trial.judge(&python, "def double(x): return 2 * x", limits).unwrap().is_right());
//! ```
//!
//! **An answer has no access to its tests.** Tests run in a separate interpreter. Each call of the answer's
//! function goes to the answer's interpreter, and its result comes back as plain data. So an answer can
//! neither read its tests nor change the meaning of equality, and never sees expected outputs. Lists,
//! dictionaries and sets that a call changed in place come back as plain data, too.

pub mod build;
pub mod guest;
mod interpreter;
pub mod library;
pub mod math;
pub mod text;
pub mod trial;

pub use interpreter::{End, Interpreter, LEAST_MEMORY, Limits, Session};
