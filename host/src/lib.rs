//! allot: rollout allocation for group-based RL post-training.
//!
//! The program owns the model, the rollouts, the rewards, the optimizer and the budget; an
//! allocation policy is a Wasm component that looks at what was sampled so far and answers with a
//! plan. [`step`](step::step) is the whole of it on two screens.

pub mod bench;
pub mod build;
pub mod chat;
pub mod checkpoint;
pub mod commands;
pub mod comparison;
pub mod component;
pub mod components;
pub mod config;
pub mod diff;
pub mod engines;
pub mod evaluation;
pub mod executor;
pub mod find;
pub mod folder;
pub mod gather;
pub mod hub;
pub mod interrupt;
pub mod jobs;
pub mod keeper;
pub mod language;
pub mod made;
pub mod memory;
pub mod meter;
pub mod models;
pub mod outputs;
pub mod pretrain;
mod preview1;
pub mod problems;
pub mod progress;
pub mod registry;
pub mod resume;
pub mod reward;
pub mod run;
pub mod screen;
pub mod shadow;
pub mod shipped;
pub mod simulation;
pub mod source;
pub mod step;
pub mod summary;
pub mod swap;
pub mod tally;
pub mod tokens;
pub mod training;
pub mod watch;
