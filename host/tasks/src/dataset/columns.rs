//! Columns: which ones hold the question, the answer and the values for policies, and how a path finds its
//! value in a row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use allot_allocation::{Cell, SOURCE};
use serde::Deserialize as _;
use serde_json::Value;

use super::row::{Fault, Row, WHOLE};
use super::{DataError, DatasetConfig};
use crate::place::Place;

/// Known layouts with one answer column, as (question, answer); the first that fits counts.
const LAYOUTS: [(&str, &str); 4] = [
    // verl: examples/data_preprocess/*.py.
    ("prompt", "reward_model.ground_truth"),
    // MATH, rLLM, Polaris-53K. Before GSM8K's, because Qwen2.5-Math's files have both.
    ("problem", "answer"),
    // GSM8K and reasoning-gym.
    ("question", "answer"),
    // DeepMath-103K.
    ("question", "final_answer"),
];

/// TRL's question column, and the answer columns that its reward functions use: TRL prescribes none. They
/// come after the layouts above. A file with several of them needs `answer` in the config.
const TRL: (&str, [&str; 5]) = ("prompt", ["solution", "ground_truth", "answer", "final_answer", "target"]);

/// TRL's answer column that may contain worked solutions.
const SOLUTION: &str = "solution";

/// The question and answer columns of a file.
pub(super) struct Mapping {
    pub question: String,
    pub answer: String,
    /// Whether the answer column is `solution` without being named in the config.
    pub found_solution: bool,
}

impl Mapping {
    /// Finds the columns named by the config, or else those of a known layout.
    pub(super) fn find(config: &DatasetConfig, columns: &[String], path: &Path) -> Result<Self, DataError> {
        let given = (config.question.as_deref(), config.answer.as_deref());
        let found = match given {
            (Some(question), Some(answer)) => Some((question, answer)),
            (Some(question), None) => {
                LAYOUTS.iter().find(|l| has(columns, l.1)).map(|layout| (question, layout.1))
            }
            (None, Some(answer)) => {
                LAYOUTS.iter().find(|l| has(columns, l.0)).map(|layout| (layout.0, answer))
            }
            (None, None) => LAYOUTS.into_iter().find(|l| has(columns, l.0) && has(columns, l.1)),
        };
        let trl = || {
            let question = given.0.or(has(columns, TRL.0).then_some(TRL.0));
            let answers: Vec<&str> = TRL.1.into_iter().filter(|answer| has(columns, answer)).collect();
            match (question, given.1, answers.as_slice()) {
                (Some(question), None, [answer]) => Ok(Some((question, *answer))),
                (Some(_), None, [_, _, ..]) => Err(DataError::SeveralAnswers {
                    path: path.to_owned(),
                    answers: answers.into_iter().map(str::to_owned).collect(),
                }),
                _ => Ok(None),
            }
        };
        match found.map_or_else(trl, |found| Ok(Some(found)))? {
            Some((question, answer)) => Ok(Self {
                question: question.to_owned(),
                answer: answer.to_owned(),
                found_solution: given.1.is_none() && answer == SOLUTION,
            }),
            None if columns.is_empty() => Err(DataError::Empty(path.to_owned())),
            None => Err(DataError::NoLayout {
                path: path.to_owned(),
                missing: match given {
                    (None, None) => "question and answer",
                    (None, _) => "question",
                    _ => "answer",
                },
                columns: columns.to_vec(),
            }),
        }
    }

    /// Checks that a file with a schema has the columns. The error is about the whole file, since all of
    /// its rows have the same columns.
    pub(super) fn check(&self, columns: &[String], path: &Path) -> Result<(), DataError> {
        let both = [("question", &self.question), ("answer", &self.answer)];
        match both.into_iter().find(|(_, column)| *column != WHOLE && !has(columns, column)) {
            None => Ok(()),
            Some((key, column)) => Err(DataError::NoColumn {
                place: format!("`{}`", path.display()),
                key,
                column: column.clone(),
                columns: columns.to_vec(),
            }),
        }
    }

    /// Returns the value of the question in a row.
    pub(super) fn question_in<'a>(&self, row: &'a Row, place: &Place) -> Result<&'a Value, DataError> {
        at(row, &self.question).ok_or_else(|| missing(row, place, "question", &self.question))
    }

    /// Returns the value of the answer in a row.
    pub(super) fn answer_in<'a>(&self, row: &'a Row, place: &Place) -> Result<Cow<'a, Value>, DataError> {
        if self.answer == WHOLE {
            return Ok(Cow::Owned(Value::Object(row.clone())));
        }
        let found = at(row, &self.answer).map(Cow::Borrowed);
        found.ok_or_else(|| missing(row, place, "answer", &self.answer))
    }
}

/// The columns of a file that a policy uses.
pub(super) struct Fields {
    fields: Vec<Field>,
    /// Whether all values of the file are text, so that text which is a number counts as a number.
    are_text: bool,
}

struct Field {
    /// The policy's name for the column.
    name: String,
    /// Origin of its values.
    from: From,
}

enum From {
    /// The values of this column of the file.
    Column(String),
    /// One value for all problems: the name of their source.
    Source(String),
}

impl Fields {
    /// Finds the columns `wanted`: those that the config maps to them, or else columns of the same name. A
    /// dash in a policy's name also matches an underscore.
    pub(super) fn find(
        wanted: &[String],
        given: &BTreeMap<String, String>,
        columns: &[String],
        source: &str,
        are_text: bool,
    ) -> Self {
        let from = |name: &String| {
            let below = name.replace('-', "_");
            match given.get(name) {
                Some(column) => From::Column(column.clone()),
                None if name == SOURCE && !has(columns, name) => From::Source(source.to_owned()),
                None if has(columns, &below) && !has(columns, name) => From::Column(below),
                None => From::Column(name.clone()),
            }
        };
        let fields = wanted.iter().map(|name| Field { name: name.clone(), from: from(name) }).collect();
        Self { fields, are_text }
    }

    /// Names of the file's columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.fields.iter().filter_map(|field| match &field.from {
            From::Column(column) => Some(column),
            From::Source(_) => None,
        })
    }

    /// Returns a row's values in these columns.
    pub(super) fn cells_in(
        &self,
        row: &Row,
        place: &Place,
        faults: &[Fault],
    ) -> Result<Vec<Cell>, DataError> {
        Fault::check(faults, place, self.names())?;
        let cell = |field: &Field| {
            let name = &field.name;
            let column = match &field.from {
                From::Column(column) => column,
                From::Source(source) => return Ok(Cell::Word(source.clone())),
            };
            let value = at(row, column).ok_or_else(|| DataError::NoFact {
                place: place.clone(),
                name: name.clone(),
                column: column.clone(),
                columns: row.keys().cloned().collect(),
            })?;
            let number = value.as_str().filter(|_| self.are_text).and_then(|text| text.trim().parse().ok());
            number
                .map_or_else(|| Cell::deserialize(value), |x: f64| Cell::deserialize(&Value::from(x)))
                .map_err(|error| DataError::Fact {
                    place: place.clone(),
                    name: name.clone(),
                    column: column.clone(),
                    found: if value.is_null() { "null".to_owned() } else { error.to_string() },
                })
        };
        self.fields.iter().map(cell).collect()
    }
}

fn missing(row: &Row, place: &Place, key: &'static str, column: &str) -> DataError {
    let columns = row.keys().cloned().collect();
    DataError::NoColumn { place: place.to_string(), key, column: column.to_owned(), columns }
}

/// Whether a column exists, or a struct with columns in it.
pub(super) fn has(columns: &[String], path: &str) -> bool {
    let inside = |column: &String| column.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    columns.iter().any(|column| column == path || inside(column))
}

/// Returns the value at a path. A column's own name may contain a dot. Fields of a null struct are null.
pub(super) fn at<'a>(row: &'a Row, path: &str) -> Option<&'a Value> {
    if let Some(value) = row.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| match row.get(&path[..dot])? {
        Value::Object(inner) => at(inner, &path[dot + 1..]),
        Value::Null => Some(&Value::Null),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> Row {
        match value {
            Value::Object(row) => row,
            _ => Row::new(),
        }
    }

    #[test]
    fn a_path_reaches_into_structs_and_past_dots_in_names() {
        let row = row(json!({"a": {"b": {"c": 1}}, "a.b": {"d": 2}, "x.y": 3, "gone": null}));
        let number = |path| at(&row, path).and_then(Value::as_i64);
        assert_eq!(number("a.b.c"), Some(1));
        assert_eq!(number("a.b.d"), Some(2));
        assert_eq!(number("x.y"), Some(3));
        assert_eq!(at(&row, "gone.inside"), Some(&Value::Null));
        assert_eq!(at(&row, "a.z"), None);
        assert_eq!(at(&row, "x"), None);
    }
}
