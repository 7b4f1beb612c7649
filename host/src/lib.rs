//! allot: rollout allocation for group-based RL post-training.
//!
//! The program owns the model, the rollouts, the rewards, the optimizer and the budget; an
//! allocation policy is a Wasm component that looks at what was sampled so far and answers with a
//! plan. [`step`](step::step) is the whole of it on two screens.

pub mod chat;
pub mod commands;
pub mod component;
pub mod config;
pub mod diff;
pub mod made;
pub mod record;
pub mod reward;
pub mod run;
pub mod shipped;
pub mod simulation;
pub mod step;
pub mod trouble;
