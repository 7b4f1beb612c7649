//! What samples and learns: a model on some device, behind three verbs.
//!
//! [`Engine`] is all that the host knows of it. Weights may be local, on a GPU, on another machine
//! or, in [`Coin`], a table of odds: nothing outside this crate may assume where they are. The
//! crate knows nothing of policies and of the sandbox that they run in.

mod coin;
mod engine;
pub mod model;

pub use coin::{Coin, CoinConfig};
pub use engine::{Capabilities, Engine, EngineError, Example, Report, Sample};
