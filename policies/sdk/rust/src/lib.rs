//! What a Rust author needs to write an allocation policy.
//!
//! A policy is a type with a name, some settings, perhaps some state, and one decision:
//!
//! ```
//! use allot_policy::prelude::*;
//!
//! /// Samples the same number of rollouts for every prompt and trains on all of them.
//! pub struct Even;
//!
//! #[derive(Settings)]
//! pub struct EvenSettings {
//!     /// Rollouts of each prompt.
//!     #[setting(default = 8)]
//!     rollouts: u32,
//! }
//!
//! impl Policy for Even {
//!     const NAME: &'static str = "even";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!     const SUMMARY: &'static str = "the same number of rollouts for every prompt";
//!     type Settings = EvenSettings;
//!     type State = ();
//!
//!     fn decide(settings: &EvenSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
//!         if view.round > 0 {
//!             return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
//!         }
//!         let prompts = view.pool.iter().take(run.groups as usize);
//!         Ok(Plan::sample(prompts.map(|p| Request::new(p.id, settings.rollouts))))
//!     }
//! }
//!
//! allot_policy::export!(Even);
//! # fn main() {}
//! ```
//!
//! What only some policies need is named by two constants, and costs the others nothing: [`Policy::NEEDS`] and
//! [`Policy::COLUMNS`].
//!
//! Compiled for the machine at hand this is a plain function that unit tests call
//! ([`describe`], [`begin`], [`decide`]); compiled for Wasm it is a component of the contract
//! `rollout:allocation@0.3.0` (`wit/0.3/allocation.wit`). The SDK knows nothing of any host.

// The derives name this crate by its name, in its own tests too.
#[cfg(test)]
extern crate self as allot_policy;

#[allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[doc(hidden)]
pub mod bindings;
mod bid;
pub mod chance;
mod export;
pub mod facts;
mod group;
pub mod log;
#[cfg(not(target_arch = "wasm32"))]
pub mod made;
mod plan;
mod policy;
mod settings;
mod state;

pub use allot_policy_derive::{Choice, Settings, State};
pub use bid::Bid;
/// The contract's types, as generated from `wit/0.3/allocation.wit`.
pub use bindings::rollout::allocation::types;
#[doc(hidden)]
pub use export::shout_panics;
pub use policy::{Policy, begin, decide, describe, run_with};
pub use settings::{Choice, FromValue, Settings, bad as bad_setting, needs_two, or_else};
#[doc(hidden)]
pub use settings::{read as settings_read, within as settings_within};
#[doc(hidden)]
pub use state::mark as state_mark;
pub use state::{Field, State};

/// Everything that a policy's file needs.
pub mod prelude {
    pub use crate::chance::Chance;
    pub use crate::facts::{self, Count, Measure};
    pub use crate::log;
    pub use crate::types::{
        Action, Advantage, Batch, Error, Group, Needs, Origin, Past, Pick, Plan, Prompt, PromptId, Request,
        Run, Sampling, Start, Stopped, Turn, Update, View,
    };
    pub use crate::{Choice, Policy, Settings, State, bad_setting, needs_two, or_else};
}
