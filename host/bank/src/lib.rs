//! A bank: rollouts by prompt that were sampled before, by an allot run, another trainer or an evaluation.
//! [`read`] reads it from files and [`Fit`] fits its pass rates. [`Draws`] is an engine that draws from it
//! and does not learn, so that a policy's allocation can be tried without a model.
//!
//! This crate does not depend on policies, configs or records.
//!
//! ```
//! use allot_allocation::PromptId;
//! use allot_bank::{Bank, Draws, Row};
//!
//! let row = |key: &str, correct| Row {
//!     key: key.to_owned(),
//!     reward: f32::from(correct),
//!     correct,
//!     tokens: Some(10),
//!     ..Row::default()
//! };
//! let bank = Bank::of(vec![row("a", true), row("a", false), row("b", true)]);
//! assert_eq!((bank.prompts.len(), bank.prompts[0].right()), (2, 1));
//! // What a run draws of a prompt first is what the bank has, in an order of its own.
//! let draws = Draws::new(bank, 1);
//! let two: Vec<bool> = (0..2).map(|position| draws.draw(PromptId(0), position).answer.correct).collect();
//! assert_ne!(two[0], two[1]);
//! ```

mod bank;
mod cell;
mod draws;
mod dump;
mod fit;
mod layout;
mod lessons;
mod pickle;
mod profile;
mod reading;
mod row;
mod traces;

pub use bank::{Bank, Prompt, Rollout};
pub use draws::{Drawn, Draws, Origin, Tally};
pub use dump::is_dump;
pub use fit::Fit;
pub use layout::Field;
pub use lessons::{Lesson, Unit, information, paid, resample};
pub use profile::Profile;
pub use reading::{Asked, Told, read};
pub use row::{Left, Row};
