//! What is asked, and how answers are judged: problems from data sets and from generators, and the
//! graders of answers. It knows no tokens, no tensors and no Wasm.

pub mod dataset;
pub mod generate;
pub mod grader;
mod near;
mod pass;
mod place;
mod problem;
mod question;
pub mod template;

pub use near::{Near, near};
pub use pass::{mean_pass_at_k, pass_at_k};
pub use problem::{Ask, Message, Problem};
pub use question::{Key, folded};
