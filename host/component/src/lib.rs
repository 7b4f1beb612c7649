//! Policy components without the engine that runs them: a policy's description, the limits of a call, a
//! component's hash and size, and the built-in components.
//!
//! Configs and registries depend on this crate alone, so that they do not build a Wasm engine.
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
