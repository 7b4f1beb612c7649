//! The place of a row, for error messages.

use std::fmt;
use std::sync::Arc;

/// The place of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as named in the config.
    pub file: Arc<str>,
    /// The unit of `number`: a line of JSON lines, an item of an array, a row of parquet.
    pub unit: &'static str,
    /// The row's number, from 1.
    pub number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} {}", self.file, self.unit, self.number)
    }
}
