//! Where a row is, for a reader of an error.

use std::fmt;
use std::sync::Arc;

/// Where a row stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the config has it.
    pub file: Arc<str>,
    /// What is counted in it: lines of JSON lines, items of an array, rows of parquet.
    pub unit: &'static str,
    /// The row's number, from 1.
    pub number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} {}", self.file, self.unit, self.number)
    }
}
