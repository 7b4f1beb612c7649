//! Rows: what a data file holds, one object each, with the place where it stands.
//!
//! Knows the three formats, and nothing of which column means what.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DataError;
use super::parquet_file::ParquetFile;
use super::row::{Row, Visit};
use crate::place::Place;

/// The byte order mark that some editors write at the start of a file.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// The format of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// JSON objects, one on each line; blank lines count as lines, not as rows.
    Jsonl,
    /// One JSON array of objects.
    Json,
    /// Parquet, uncompressed or with snappy or zstd.
    Parquet,
}

/// An open data file.
pub struct Rows(Source);

/// By its format.
enum Source {
    Lines { file: Arc<str>, text: Vec<u8> },
    Array { file: Arc<str>, items: Vec<Value> },
    Parquet(Box<ParquetFile>),
}

impl Rows {
    /// Opens a file. One that ends in `.json` may hold an array or lines: many that are called so
    /// on the hub hold lines.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, DataError> {
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let format = match (format, extension.as_deref()) {
            (Some(format), _) => format,
            (None, Some("jsonl" | "ndjson" | "json")) => Format::Jsonl,
            (None, Some("parquet" | "pq")) => Format::Parquet,
            (None, _) => return Err(DataError::UnknownFormat(path.to_owned())),
        };
        if format == Format::Parquet {
            return Ok(Self(Source::Parquet(Box::new(ParquetFile::open(path)?))));
        }
        let mut text = std::fs::read(path).map_err(|e| DataError::unreadable(path, &e))?;
        if text.starts_with(MARK) {
            text.drain(..MARK.len());
        }
        let file: Arc<str> = path.to_string_lossy().into();
        // No row of JSON lines can begin with a bracket: a row is an object.
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        if format == Format::Json || first == Some(&b'[') {
            let items = array(&file, &text, path)?;
            return Ok(Self(Source::Array { file, items }));
        }
        Ok(Self(Source::Lines { file, text }))
    }

    /// The columns' names, with dots for what lies in structs: those of the first row, or those of
    /// a parquet file's schema.
    pub fn columns(&self) -> Result<Vec<String>, DataError> {
        if let Source::Parquet(file) = &self.0 {
            return Ok(file.columns());
        }
        let mut names = Vec::new();
        let first = self.json_rows(&mut |_, row| {
            gather(&row, "", &mut names);
            Ok(ControlFlow::Break(()))
        });
        first.map(|_| names)
    }

    /// Whether every row has all of [`columns`](Self::columns), as a parquet file's schema says.
    pub fn have_a_schema(&self) -> bool {
        matches!(self.0, Source::Parquet(_))
    }

    /// Visits every row, in the file's order. Of parquet, only the columns `needed` are read; those
    /// of them that the file lacks are left to whoever looks for them in the row.
    pub fn each(&self, needed: &[String], visit: &mut Visit<'_>) -> Result<ControlFlow<()>, DataError> {
        match &self.0 {
            Source::Parquet(file) => file.each(needed, visit),
            _ => self.json_rows(visit),
        }
    }

    fn json_rows(&self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, DataError> {
        match &self.0 {
            Source::Lines { file, text } => {
                for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
                    if line.iter().all(u8::is_ascii_whitespace) {
                        continue;
                    }
                    let place = Place { file: file.clone(), unit: "line", number };
                    let value = parse(line, &place)?;
                    if visit(place.clone(), object(value, &place)?)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Source::Array { file, items } => {
                for (number, item) in (1..).zip(items) {
                    let place = Place { file: file.clone(), unit: "item", number };
                    let row = object(item.clone(), &place)?;
                    if visit(place, row)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Source::Parquet(_) => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A line's value. Its errors are told by line already, so serde's own "at line 1" is cut.
fn parse(line: &[u8], place: &Place) -> Result<Value, DataError> {
    let text = std::str::from_utf8(line).map_err(|_| DataError::NotUtf8(place.clone()))?;
    serde_json::from_str(text).map_err(|e| DataError::NotJson {
        place: place.clone(),
        column: e.column(),
        reason: plain(&e),
    })
}

fn array(file: &Arc<str>, text: &[u8], path: &Path) -> Result<Vec<Value>, DataError> {
    let line = |number: usize| Place { file: file.clone(), unit: "line", number: number as u64 };
    let text = std::str::from_utf8(text).map_err(|e| {
        let before = String::from_utf8_lossy(&text[..e.valid_up_to()]);
        DataError::NotUtf8(line(1 + before.matches('\n').count()))
    })?;
    if text.trim().is_empty() {
        return Err(DataError::Empty(PathBuf::from(path)));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| DataError::NotJson {
        place: line(e.line()),
        column: e.column(),
        reason: plain(&e),
    })?;
    match value {
        Value::Array(items) => Ok(items),
        other => Err(DataError::NotArray { path: path.to_owned(), found: kind(&other) }),
    }
}

fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn object(value: Value, place: &Place) -> Result<Row, DataError> {
    match value {
        Value::Object(row) => Ok(row),
        other => Err(DataError::NotObject { place: place.clone(), found: kind(&other) }),
    }
}

/// A JSON value's kind, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn gather(row: &Row, before: &str, names: &mut Vec<String>) {
    for (name, value) in row {
        match value {
            Value::Object(inner) if !inner.is_empty() => gather(inner, &format!("{before}{name}."), names),
            _ => names.push(format!("{before}{name}")),
        }
    }
}
