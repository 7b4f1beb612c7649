//! A policy's component without the engine that runs it: what a policy says of itself, what a call may use, a
//! component's hash and size, and the components that ship.
//!
//! Configs and registries need this much and no more, so that neither builds a Wasm engine.
//!
//! ```
//! use allot_component::{Caps, sha256, shipped};
//!
//! let name = shipped::names()[0];
//! assert_eq!(sha256(shipped::component(name).unwrap()).len(), 64);
//! assert!(Caps::default().fuel > 0);
//! ```

mod caps;
mod description;
mod file;
mod kind;
mod sealing;
mod settings;
pub mod shipped;

pub use caps::Caps;
pub use description::{Description, Setting};
pub use file::{LARGEST, TooLarge, read, sha256};
pub use kind::Kind;
pub use sealing::sealed;
pub use settings::{in_force, settings};
