//! A row, what is done with one, and values of tables that a row can't have.

use std::ops::ControlFlow;

use serde_json::{Map, Number, Value};

use super::DataError;
use crate::place::Place;

/// What stands for a row as a whole, as an answer: its tests may be in several columns.
pub(super) const WHOLE: &str = "*";

/// A row: its columns by name.
pub type Row = Map<String, Value>;

/// What is done with a row and its faults; `Break` ends the reading.
pub type Visit<'a> = dyn FnMut(Place, Row, &[Fault]) -> Result<ControlFlow<()>, DataError> + 'a;

/// A value in a row of JSON that JSON does not have. It does no harm in a column that is not used.
#[derive(Debug, PartialEq)]
pub struct Fault {
    /// The column that it is in, with dots for what lies in objects.
    pub(super) column: String,
    /// What it is, as a predicate.
    pub(super) found: &'static str,
}

impl Fault {
    /// Errs if one of a row's faults is in a column that is used.
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

    /// Whether a column is the fault's, lies in it, or has it in itself.
    fn concerns(&self, used: &str) -> bool {
        let inside = |path: &str, of: &str| {
            path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        used == WHOLE || inside(used, &self.column) || inside(&self.column, used)
    }
}

/// Why a value of a table is none that JSON has.
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

/// A float as JSON. Not-a-number is null, for that is how pandas writes that a table has no value.
pub(super) fn float(v: f64) -> Result<Value, Odd> {
    match Number::from_f64(v) {
        Some(number) => Ok(Value::Number(number)),
        None if v.is_nan() => Ok(Value::Null),
        None => Err(Odd::Kind("infinite")),
    }
}
