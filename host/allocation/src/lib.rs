//! Rollout allocation, as plain data and arithmetic.
//!
//! What a policy sees ([`View`]) and answers ([`Plan`]), which plans are legal ([`rules`]), who may
//! spend what ([`Books`]), which prompts are on offer ([`Pool`]), which rollouts are on hand
//! ([`Shelf`]), how rewards become advantages, and where chance comes from ([`seed`]).
//!
//! It knows nothing of files, Wasm, tensors, threads or clocks, does no I/O, and fails only by a
//! rule that a policy broke ([`rules::Broken`]) or an engine ([`Fault`]).

pub mod advantage;
mod books;
mod compute;
mod every;
pub mod log;
mod plan;
mod pool;
pub mod rules;
mod run;
pub mod seed;
mod shelf;
pub mod shown;
mod view;

pub use books::{Books, Fault, Grant, Limits, Line, Spent};
pub use compute::{Ceilings, Compute, Cost, Flops};
pub use every::Every;
pub use plan::{Action, Advantage, Batch, Pick, Plan, Request};
pub use pool::{Order, Pool};
pub use run::{Run, Value};
pub use shelf::{Outcome, RolloutId, Settled, Shelf, Visit};
pub use view::{Budget, Group, Past, Prompt, PromptId, View};
