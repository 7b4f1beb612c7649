//! What runs came to: histories folded from records, statistics over seeds, figures, tables and pages.
//!
//! No number is made up here: each stands in a record, or follows from numbers in records by what
//! [`statistics`] has.

pub mod axis;
pub mod follow;
pub mod history;
pub mod report;
pub mod statistics;

pub use axis::{Axis, Costs};
pub use history::{Fates, History};
pub use report::Report;
