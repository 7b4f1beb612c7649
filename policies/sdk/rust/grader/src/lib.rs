//! What a Rust author needs to write a grader.
//!
//! A grader is a type with a name, perhaps some settings, and one judgement:
//!
//! ```
//! use allot_grader::prelude::*;
//!
//! /// Right is what has a gold answer in it.
//! pub struct Contains {
//!     caseless: bool,
//! }
//!
//! settings! {
//!     /// What a run may set.
//!     pub struct ContainsSettings {
//!         /// Whether small letters are the same as large ones.
//!         caseless: bool = false,
//!     }
//! }
//!
//! impl Grader for Contains {
//!     const NAME: &'static str = "contains";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!     const SUMMARY: &'static str = "right is what has a gold answer in it";
//!     type Settings = ContainsSettings;
//!
//!     fn begin(settings: ContainsSettings) -> Result<Self, Error> {
//!         Ok(Self { caseless: settings.caseless })
//!     }
//!
//!     fn grade(&self, question: &Question) -> Verdict {
//!         let plain = |text: &str| if self.caseless { text.to_lowercase() } else { text.to_owned() };
//!         let answer = plain(&question.answer);
//!         Verdict::correct(question.gold.iter().any(|gold| answer.contains(&plain(gold))))
//!     }
//! }
//!
//! allot_grader::export!(Contains);
//! # fn main() {
//! let contains = allot_grader::begun::<Contains>(&[("caseless", true.into())]).expect("it begins");
//! assert_eq!(contains.grade(&Question::new("Paris", "it is PARIS")), Verdict::correct(true));
//! # }
//! ```
//!
//! A verdict rests on the settings and the question alone. A grader whose verdicts compare the answers of a group is a
//! [`GroupGrader`]. Compiled for the machine at hand this is a plain type that
//! unit tests call; compiled for Wasm it is a component of the contract `rollout:reward@0.2.0`
//! (`wit/reward/0.2/reward.wit`). The SDK knows nothing of any host.

#[allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[doc(hidden)]
pub mod bindings;
mod export;
mod grader;
pub mod log;
mod settings;
mod verdict;

/// The contract's types, as generated from `wit/reward/0.2/reward.wit`.
pub use bindings::rollout::reward::types;
#[doc(hidden)]
pub use export::shout_panics;
pub use grader::{Grader, GroupGrader, begun, describe, given};
pub use settings::{FromValue, Settings, bad as bad_setting};
#[doc(hidden)]
pub use settings::{kebab, read as settings_read, summary};

/// Everything that a grader's file needs.
pub mod prelude {
    pub use crate::types::{Error, Question, Verdict};
    pub use crate::{Grader, bad_setting, log, settings};
}
