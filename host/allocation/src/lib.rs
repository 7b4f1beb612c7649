//! Rollout allocation: plain data types and arithmetic.
//!
//! This crate holds a policy's input ([`View`]) and output ([`Plan`]), the rules that a plan must keep
//! ([`rules`]), the budget ([`Ledger`]), the prompts on offer ([`Pool`]), the buffered rollouts
//! ([`RolloutBuffer`]), the computation of advantages ([`advantage`]), and randomness ([`seed`]).
//!
//! It uses no files, Wasm, tensors, threads or clocks and does no I/O. Its errors are a rule broken by a
//! policy ([`rules::Broken`]), a fault of an engine ([`Fault`]), and a mismatch in a column ([`Misfit`]).
//!
//! ```
//! use allot_allocation::{Ledger, Limits, PromptId, Request};
//!
//! let limits =
//!     Limits { rounds: 4, step_rollouts: None, run_rollouts: Some(10), run_tokens: None, longest: 256 };
//! let mut ledger = Ledger::new(limits);
//! ledger.open_step();
//! // 24 rollouts are asked for, and 10 are left: requests are served from first to last, and clipped.
//! let asked = [Request::new(PromptId(7), 8), Request::new(PromptId(3), 16)];
//! let grant = ledger.grant(&asked, |_prompt| (0, 0));
//! assert_eq!(grant.lines().iter().map(|line| line.count).collect::<Vec<_>>(), [8, 2]);
//! ```

pub mod advantage;
mod buffer;
mod column;
mod compute;
mod every;
mod history;
mod ledger;
pub mod log;
mod plan;
mod pool;
mod portions;
pub mod rules;
mod run;
pub mod seed;
pub mod shown;
mod turns;
mod view;

pub use buffer::{Outcome, RolloutBuffer, RolloutId, Settled, Visit};
pub use column::{Cell, Column, Columns, LENGTH, Misfit, SOURCE};
pub use compute::{Ceilings, Compute, Cost, Flops, TokenCosts};
pub use every::Every;
pub use history::History;
pub use ledger::{Fault, Grant, GrantLine, Ledger, Limits, Spent};
pub use plan::{Action, Advantage, Batch, Enough, Geometry, Hold, Pick, Plan, Request};
pub use pool::{Order, Pool};
pub use portions::{Portions, total};
pub use run::{Need, Run, SamplerRange, SamplerSettings, Terms, Value};
pub use turns::{GroupTurns, Origin, Start, Stopped, TurnLength};
pub use view::{Budget, Group, Past, Prompt, PromptId, Tally, View};

/// Returns whether a number is 1. Serde uses it to skip fields.
pub fn is_one(n: &u32) -> bool {
    *n == 1
}

/// Returns whether a number is zero. Serde uses it to skip fields.
pub fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}
