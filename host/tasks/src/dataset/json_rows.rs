//! Rows of JSON: objects, one per line or all in one array. Both are read row by row, so memory holds only
//! the longest row of a file.

use std::io::{BufRead, Read as _};
use std::sync::Arc;

use serde_json::Value;

use super::DataError;
use super::opened::{LONGEST_ROW, Opened, newlines};
use super::python_json::{Parsed, parse};
use super::row::{Fault, Row};
use crate::place::Place;

/// A file of JSON rows while it is read.
pub(super) struct JsonRows {
    file: Arc<str>,
    bytes: Box<dyn BufRead>,
    shape: Shape,
    /// Text of the current row.
    text: Vec<u8>,
    /// Position: number of the line, from 1, and number of its bytes that were read.
    line: u64,
    column: usize,
    /// Number of items read from an array.
    items: u64,
}

#[derive(PartialEq)]
enum Shape {
    Lines,
    Array,
    /// The file is read to its end.
    Done,
}

/// A row with its place, and its values that JSON does not have.
pub(super) struct JsonRow {
    pub place: Place,
    pub row: Row,
    pub faults: Vec<Fault>,
}

impl JsonRows {
    /// Reads an array if the first byte opens one: no line begins with `[`, because a row is an object.
    pub(super) fn new(opened: Opened, must_be_array: bool) -> Result<Self, DataError> {
        let Opened { path, bytes, .. } = opened;
        let file: Arc<str> = path.to_string_lossy().into();
        let mut rows =
            Self { file, bytes, shape: Shape::Lines, text: Vec::new(), line: 1, column: 0, items: 0 };
        match rows.first_byte()? {
            None => rows.shape = Shape::Done,
            Some(b'[') => {
                rows.bytes.consume(1);
                rows.column += 1;
                rows.shape = Shape::Array;
            }
            Some(byte) if must_be_array => {
                let found = match byte {
                    b'{' => "an object",
                    b'"' => "text",
                    b'-' | b'0'..=b'9' => "a number",
                    _ => {
                        rows.column += 1;
                        return Err(rows.not_json("expected value"));
                    }
                };
                return Err(DataError::NotArray { path, found });
            }
            Some(_) => {}
        }
        Ok(rows)
    }

    /// Returns the next row.
    pub(super) fn next(&mut self) -> Result<Option<JsonRow>, DataError> {
        match self.shape {
            Shape::Done => Ok(None),
            Shape::Lines => self.next_line(),
            Shape::Array => self.next_item(),
        }
    }

    fn place(&self) -> Place {
        Place { file: Arc::clone(&self.file), unit: "line", number: self.line }
    }

    /// Skips white space and returns the first byte after it.
    fn first_byte(&mut self) -> Result<Option<u8>, DataError> {
        loop {
            let place = self.place();
            let chunk = self.bytes.fill_buf().map_err(|e| DataError::damaged(place, &e))?;
            let first = chunk.iter().position(|byte| !byte.is_ascii_whitespace());
            let blank = &chunk[..first.unwrap_or(chunk.len())];
            self.line += newlines(blank);
            self.column = column_after(blank, self.column);
            let (found, blank, all) = (first.map(|at| chunk[at]), blank.len(), chunk.len());
            self.bytes.consume(blank);
            if found.is_some() || all == 0 {
                return Ok(found);
            }
        }
    }

    fn next_line(&mut self) -> Result<Option<JsonRow>, DataError> {
        loop {
            let place = self.place();
            self.text.clear();
            let mut bytes = (&mut self.bytes).take(LONGEST_ROW as u64 + 1);
            let read =
                bytes.read_until(b'\n', &mut self.text).map_err(|e| DataError::damaged(place.clone(), &e))?;
            if read == 0 {
                return Ok(None);
            }
            if read > LONGEST_ROW {
                return Err(DataError::LongRow { place });
            }
            self.line += 1;
            if self.text.last() == Some(&b'\n') {
                self.text.pop();
            }
            if !self.text.iter().all(u8::is_ascii_whitespace) {
                let at = At { line: place.clone(), column: std::mem::take(&mut self.column) };
                return row(&self.text, place, &at).map(Some);
            }
        }
    }

    fn next_item(&mut self) -> Result<Option<JsonRow>, DataError> {
        let at = At { line: self.place(), column: self.column };
        let is_last = self.item()?;
        let is_blank = self.text.iter().all(u8::is_ascii_whitespace);
        if is_last {
            self.shape = Shape::Done;
            if self.first_byte()?.is_some() {
                self.column += 1;
                return Err(self.not_json("trailing characters"));
            }
            if is_blank && self.items == 0 {
                return Ok(None);
            }
        }
        if is_blank {
            return Err(self.not_json(if is_last { "trailing comma" } else { "expected value" }));
        }
        self.items += 1;
        let place = Place { file: Arc::clone(&self.file), unit: "item", number: self.items };
        row(&self.text, place, &at).map(Some)
    }

    /// Reads the next item of the array into `text`. Returns whether the array ends after it.
    fn item(&mut self) -> Result<bool, DataError> {
        self.text.clear();
        let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
        loop {
            let place = self.place();
            let chunk = self.bytes.fill_buf().map_err(|e| DataError::damaged(place.clone(), &e))?;
            if chunk.is_empty() {
                return Err(self.not_json("EOF while parsing a list"));
            }
            let end = chunk.iter().position(|byte| {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    _ if quoted => {}
                    b'[' | b'{' => depth += 1,
                    b',' | b']' if depth == 0 => return true,
                    b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                false
            });
            let part = &chunk[..end.unwrap_or(chunk.len())];
            self.text.extend_from_slice(part);
            self.line += newlines(part);
            self.column = column_after(part, self.column);
            let is_last = end.map(|at| chunk[at] == b']');
            let read = part.len() + usize::from(end.is_some());
            self.bytes.consume(read);
            if self.text.len() > LONGEST_ROW {
                return Err(DataError::LongRow { place });
            }
            if let Some(is_last) = is_last {
                self.column += 1;
                return Ok(is_last);
            }
        }
    }

    fn not_json(&self, reason: &str) -> DataError {
        DataError::NotJson { place: self.place(), column: self.column, reason: reason.to_owned() }
    }
}

/// Position of a row's text: its first line, and the number of bytes before it there.
struct At {
    line: Place,
    column: usize,
}

impl At {
    /// Returns the place `after` lines below the first line of the text.
    fn line(&self, after: u64) -> Place {
        Place { number: self.line.number + after, ..self.line.clone() }
    }
}

/// Parses a row.
fn row(text: &[u8], place: Place, at: &At) -> Result<JsonRow, DataError> {
    let text = std::str::from_utf8(text)
        .map_err(|e| DataError::NotUtf8(at.line(newlines(&text[..e.valid_up_to()]))))?;
    let Parsed { value, faults } = parse(text).map_err(|e| DataError::NotJson {
        place: at.line((e.line() as u64).saturating_sub(1)),
        column: if e.line() == 1 { at.column + e.column() } else { e.column() },
        reason: plain(&e),
    })?;
    match value {
        Value::Object(row) => Ok(JsonRow { place, row, faults }),
        other => Err(DataError::NotObject { place, found: kind(&other) }),
    }
}

/// Returns serde_json's message without its "at line 1".
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// Returns the number of bytes read of the current line, after `read` follows `before` bytes of it.
fn column_after(read: &[u8], before: usize) -> usize {
    match read.iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => read.len() - newline - 1,
        None => before + read.len(),
    }
}

/// Returns the kind of a JSON value, for messages.
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
