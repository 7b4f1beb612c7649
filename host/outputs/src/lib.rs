//! Output files of a run, for other tools: metrics by step as JSON lines ([`metrics`], described in
//! [`named`]) and as [`tensorboard`] events, and the policy's log lines ([`log`]). Parquet tables hold
//! every problem ([`problems`]) and every rollout of a run ([`rollouts`]), a comparison ([`compared`]), a
//! bank ([`banked`]) or graded answers ([`graded`]).
//!
//! The record is enough to replay every decision; these files are for people who inspect a run. Nothing
//! here computes a number, and a run reads these files only to resume from a checkpoint.
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
