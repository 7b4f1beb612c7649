//! allot: rollout allocation for group-based RL post-training.
//!
//! The program owns the model, the rollouts, the rewards, the optimizer and the budget. An allocation
//! policy is a Wasm component that receives the rollouts so far and returns a plan. [`run`](run::run)
//! drives a run's loop, which is in [`allot_loop`]; start reading there.
//!
//! ```
//! use allot::commands::{Cli, run};
//! use allot::screen::Screen;
//! use allot_base::Exit;
//! use clap::Parser as _;
//!
//! let (mut out, mut progress) = (Vec::new(), Vec::new());
//! let mut screen = Screen { out: &mut out, progress: &mut progress, live: false, failed: None };
//! let done = run(Cli::parse_from(["allot", "policies"]), &mut screen)?;
//! assert!(matches!(done, Exit::Good));
//! assert!(!out.is_empty());
//! # Ok::<(), allot_base::Error>(())
//! ```

pub mod banked;
pub mod board;
pub mod callbacks;
pub mod checkpoint;
pub mod commands;
pub mod comparison;
pub mod components;
pub mod cores;
pub mod diff;
pub mod engines;
pub mod evaluation;
pub mod forecast;
pub mod gather;
pub mod head;
pub mod interrupt;
pub mod jobs;
pub mod loaded;
pub mod memory;
pub mod opened;
pub mod outside;
pub mod planned;
pub mod policy_loader;
pub mod prepared;
pub mod problems;
pub mod progress;
pub mod recorder;
pub mod resume;
pub mod run;
pub mod run_dir;
pub mod screen;
pub mod shadow;
pub mod shipped;
pub mod simulation;
pub mod sources;
pub mod stop;
pub mod summary;
pub mod swap;
pub mod tally;
pub mod training;
pub mod tuning;
pub mod until;
pub mod world;
