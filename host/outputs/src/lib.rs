//! What a run writes for other tools to read: numbers by step as lines of JSON ([`metrics`], by the names of
//! [`named`]) and as [`tensorboard`] events, the policy's words ([`log`]), and parquet tables of every problem
//! ([`problems`]) and every rollout ([`rollouts`]; of a whole comparison, [`compared`]; of a bank, [`banked`];
//! of graded answers, [`graded`]).
//!
//! The record is enough to replay every decision; these files are for people who look at a run.
//! Nothing here computes a number, and none of it is read by a run but to go on after its checkpoint.
//!
//! ```
//! use allot_outputs::named;
//!
//! // Every metric is described in one place; a part in capitals stands for what differs from run to run.
//! assert!(named::of("eval/held-out/avg@4").is_some());
//! assert!(named::of("no such metric").is_none());
//! ```

pub mod banked;
mod columns;
pub mod compared;
pub mod graded;
pub mod log;
pub mod metrics;
pub mod named;
mod part;
pub mod problems;
pub mod rollouts;
mod row;
pub mod tensorboard;
