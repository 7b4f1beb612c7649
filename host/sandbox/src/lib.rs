//! Runs allocation policies and graders of answers that are Wasm components.
//!
//! [`Sandbox::load`] inspects a component before any of it runs and explains in words why it can't be used.
//! A [`Policy`] has the contract's three calls, each in a fresh instance under [`Caps`]; a [`Grader`] has
//! those of a grader. A call always ends with a result, never with a panic, a hang or a silent default.
//! This crate knows nothing about engines, models or configs, and uses files only to cache compiled code.
//! The parts that need no Wasm engine are in [`allot_component`].
//!
//! ```
//! use allot_sandbox::{Caps, Sandbox, shipped};
//!
//! let sandbox = Sandbox::new(Caps::default(), None)?;
//! let policy = sandbox.load(shipped::component(shipped::names()[0]).unwrap(), None)?;
//! assert_eq!(policy.description().name, shipped::names()[0]);
//! assert!(sandbox.load(b"not a component", None).is_err());
//! # Ok::<(), allot_sandbox::LoadError>(())
//! ```

mod adapter;
mod call;
mod calls;
mod complexity;
mod contract;
mod cost;
mod description;
mod draft;
mod engine;
mod facts;
mod fault;
mod functions;
mod grader;
mod guest;
mod inspection;
mod instances;
mod judged;
mod kind;
mod policy;
mod restricted_wasi;
mod reward_v0_1;
mod reward_v0_2;
mod sandbox;
mod shown;
mod slots;
mod v0_1;
mod v0_2;
mod v0_3;

pub use allot_allocation::log::{Level, LogLine};
pub use allot_component::{Caps, Description, Kind, Setting, sha256, shipped};
pub use contract::Contract;
pub use cost::Cost;
pub use draft::{Draft, Interpreter};
pub use engine::Guests;
pub use fault::{Fault, LoadError, Misuse};
pub use grader::Grader;
pub use inspection::kind_of;
pub use judged::{Asked, GraderDescription, Judged, NoVerdict, Score};
pub use policy::Policy;
pub use restricted_wasi::Other;
pub use sandbox::Sandbox;

/// The contract's package, without its version.
pub const CONTRACT: &str = "rollout:allocation";
/// The version of the contract that new policies are built for.
pub const CONTRACT_VERSION: &str = "0.3.0";
