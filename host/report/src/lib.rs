//! Results of runs: histories folded from records, statistics over seeds, figures, tables and pages.
//!
//! Every number is in a record, or is computed from records by [`statistics`].
//!
//! ```
//! use allot_report::statistics::{holm, ratio};
//!
//! // Costs of two policies on four paired seeds.
//! let (arm, baseline) = ([10.0, 12.0, 9.0, 11.0], [20.0, 24.0, 18.0, 22.0]);
//! let ratio = ratio(0.95, &arm, &baseline)?;
//! assert!((ratio.value - 2.0).abs() < 1e-9);
//! assert_eq!(holm(&[0.01, 0.04])?, [0.02, 0.04]);
//! # Ok::<(), allot_report::statistics::Unfit>(())
//! ```

pub mod axis;
pub mod colour;
pub mod compare;
mod estimate;
pub mod figure;
pub mod fold;
pub mod follow;
pub mod forecast;
pub mod frontier;
pub mod history;
pub mod number;
pub mod page;
pub mod report;
pub mod scores;
pub mod seen;
pub mod sensitivity;
pub mod statistics;
pub mod tables;
pub mod tuning;

pub use axis::{Axis, Costs};
pub use history::{Fates, History};
pub use report::Report;
