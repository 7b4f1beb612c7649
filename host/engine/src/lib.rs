//! Sampling and learning: a model on some device, behind the [`Engine`] trait.
//!
//! The host samples and updates through [`Engine`]. Weights may be local, on a GPU, on another
//! machine or, in [`Coin`], a table of odds. Code outside this crate must not assume where they
//! are. The crate does not depend on policies or on their sandbox.
//!
//! ```
//! use allot_allocation::PromptId;
//! use allot_engine::{Coin, CoinConfig};
//!
//! // A fresh model in the coin-flip world. The same seed makes the same world.
//! let coin = Coin::new(CoinConfig { prompts: 100, ..CoinConfig::default() }, 1)?;
//! assert_eq!(coin.prompt_lengths().len(), 100);
//! assert!((0.0..=1.0).contains(&coin.pass_rate(PromptId(7))));
//! # Ok::<(), allot_engine::EngineError>(())
//! ```

mod coin;
pub mod core;
pub mod cpu;
mod dialogue;
mod draft;
mod engine;
mod environments;
pub mod episode;
mod flops;
mod interrupt;
mod learner;
pub mod loss;
mod mask;
pub mod model;
mod native;
mod optimizer;
pub mod place;
mod request;
mod sampler;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod statistics;
mod stops;
pub mod talk;
pub mod tensors;
mod training_row;
mod update;

pub use coin::{Coin, CoinConfig, Flip, normal};
pub use engine::{Capabilities, Cost, Engine, EngineError, Example, Purpose, Report, Sample, Sampled, Whole};
pub use environments::{Environments, Replies, Said};
pub use episode::Episode;
pub use flops::Lengths;
pub use interrupt::Interrupt;
pub use loss::{LossConfig, LossKind};
pub use mask::SamplingMask;
pub use native::{Answer, Episodes, Following, Native, NativeConfig, Signal};
pub use optimizer::{OptimizerConfig, Schedule};
pub use sampler::Sampling;
pub use stops::{End, StopTexts, Stops, TokenBytes};
pub use training_row::TrainingRow;
pub use update::{MASKED, Old, UpdateConfig, learning_flops};
