//! What runs came to: histories folded from records, statistics over seeds, figures, tables and pages.
//!
//! No number is made up here: each stands in a record, or follows from numbers in records by what
//! [`statistics`] has.

pub mod axis;
pub mod colour;
pub mod compare;
mod estimate;
pub mod figure;
pub mod fold;
pub mod follow;
pub mod history;
pub mod number;
pub mod page;
pub mod report;
pub mod scores;
pub mod statistics;
pub mod tables;

pub use axis::{Axis, Costs};
pub use history::{Fates, History};
pub use report::Report;
