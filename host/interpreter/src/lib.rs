//! Runs generated Python in a Wasm sandbox, and judges it.
//!
//! Peers run such code by `exec` in a process of their own, or on a paid service. Here it runs in CPython for WASI,
//! without files, clock, network or other processes, under a number of instructions and bytes of memory that are the
//! same on every machine: an answer that is too slow here is too slow everywhere.
//!
//! - [`build`]: the published builds of CPython that are known, by hash, and a module that has started
//! - [`Interpreter`]: one that has started, and a fresh copy of it for each answer
//! - [`guest`]: what a guest finds outside of itself
//! - [`trial`]: a problem's tests, or inputs and outputs, and whether an answer passes them
//!
//! **An answer never meets what it is judged by.** Tests run in an interpreter of their own, and each call of the
//! answer's function goes to another one, where the answer is, and comes back as plain data. So an answer can neither
//! read its tests nor change what equality means to them; and expected outputs do not enter any interpreter at all.

pub mod build;
pub mod guest;
mod interpreter;
pub mod trial;

pub use interpreter::{End, Interpreter, LEAST_MEMORY, Limits, Session};
