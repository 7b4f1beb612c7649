//! Rows, visitors of rows, and values that a row cannot have.

use std::ops::ControlFlow;

use serde_json::{Map, Number, Value};

use super::DataError;
use crate::place::Place;

/// Column name for the whole row as an answer, whose tests may be in several columns.
pub(super) const WHOLE: &str = "*";

/// A row: its columns by name.
pub type Row = Map<String, Value>;

/// A visitor of a row and its faults; `Break` ends reading.
pub type Visit<'a> = dyn FnMut(Place, Row, &[Fault]) -> Result<ControlFlow<()>, DataError> + 'a;

/// A value in a JSON row that JSON does not have. It is harmless in an unused column.
#[derive(Debug, PartialEq)]
pub struct Fault {
    /// Its column, with dots for fields of objects.
    pub(super) column: String,
    /// Its description, as a predicate.
    pub(super) found: &'static str,
}

impl Fault {
    /// Fails if a used column has one of the row's faults.
    pub fn check<'a>(
        faults: &[Self],
        place: &Place,
        used: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), DataError> {
        if faults.is_empty() {
            return Ok(());
        }
        let found = used.into_iter().find_map(|used| faults.iter().find(|fault| fault.concerns(used)));
        found.map_or(Ok(()), |fault| {
            let Self { column, found } = fault;
            Err(DataError::NotInJson { place: place.clone(), column: column.clone(), found })
        })
    }

    /// Whether a column is the fault's, is inside it, or contains it.
    fn concerns(&self, used: &str) -> bool {
        let inside = |path: &str, of: &str| {
            path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        used == WHOLE || inside(used, &self.column) || inside(&self.column, used)
    }
}

/// Reason why a table's value has no JSON value.
pub(super) enum Odd {
    NotUtf8,
    Kind(&'static str),
}

impl Odd {
    pub(super) fn at(self, place: Place) -> DataError {
        match self {
            Self::NotUtf8 => DataError::NotUtf8(place),
            Self::Kind(found) => DataError::Unread { place, reason: format!("a value is {found}") },
        }
    }
}

/// Converts a float to JSON. NaN becomes null, because pandas writes missing values as NaN.
pub(super) fn float(v: f64) -> Result<Value, Odd> {
    match Number::from_f64(v) {
        Some(number) => Ok(Value::Number(number)),
        None if v.is_nan() => Ok(Value::Null),
        None => Err(Odd::Kind("infinite")),
    }
}
