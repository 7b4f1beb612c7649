//! What is asked, and how answers are judged: problems from data sets and from generators, and the
//! graders of answers. It knows no tokens, no tensors and no Wasm.

pub mod dataset;
pub mod generate;
pub mod grader;
mod problem;

pub use problem::{Ask, Message, Problem};
