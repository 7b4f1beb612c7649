//! Problems from data sets and generators, and the graders of answers. Nothing here knows tokens, tensors
//! or Wasm.
//!
//! ```
//! use allot_tasks::grader::Grader;
//!
//! assert!(Grader::Integer.grade("42", "6 times 7 is 42.")?.correct);
//! assert!(Grader::Hendrycks.grade(r"\frac{1}{2}", r"So it is \boxed{\frac12}.")?.correct);
//! assert!(!Grader::Exact.grade("5", "It is 5.")?.correct);
//! # Ok::<(), allot_tasks::grader::Ungradable>(())
//! ```

pub mod column_sum;
pub mod dataset;
pub mod environment;
pub mod generate;
pub mod grader;
mod near;
mod pass;
mod place;
mod problem;
mod question;
mod style;
pub mod template;

pub use near::{Near, near};
pub use pass::{mean_pass_at_k, pass_at_k};
pub use problem::{Ask, Message, Problem};
pub use question::{Key, folded};
