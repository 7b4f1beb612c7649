//! Runs generated Python in a Wasm sandbox, and grades it.
//!
//! Other projects run this code by `exec` in a separate process, or on a paid service. Here it runs in
//! CPython for WASI, without files, clock, network or other processes. Its limits are a number of
//! instructions and of bytes of memory, so an answer that is too slow here is too slow on every machine.
//!
//! - [`build`]: the published builds of CPython that are known, by hash, and a module that has started
//! - [`Interpreter`]: one that has started, and a fresh copy of it for each answer
//! - [`library`]: packages of pure Python that have been imported before any answer comes; [`math`]: math-verify
//! - [`guest`]: what a guest finds outside of itself
//! - [`trial`]: a problem's tests, or inputs and outputs, and whether an answer passes them; [`text`]: the program in
//!   an answer, and whether what it prints is what was wanted
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
