//! A row, and what is done with one.

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::DataError;
use crate::place::Place;

/// A row: its columns by name.
pub type Row = Map<String, Value>;

/// What is done with a row; `Break` ends the reading.
pub type Visit<'a> = dyn FnMut(Place, Row) -> Result<ControlFlow<()>, DataError> + 'a;
