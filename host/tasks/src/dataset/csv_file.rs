//! CSV and TSV (RFC 4180), as spreadsheets and pandas write them: names in the first row, and quotes around
//! fields with separators, quotes or line breaks. Every field is text; an empty one is null.

use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::Arc;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use serde_json::Value;

use super::opened::{LONGEST_ROW, Opened, newlines};
use super::row::{Visit, WHOLE};
use super::{DataError, Format};
use crate::place::Place;

/// Maximum number of fields in a row.
const MOST_FIELDS: usize = 1 << 16;

/// An open file of CSV or TSV.
pub(super) struct CsvFile {
    records: Records,
    format: Format,
    /// Column names, from the first row. A column with an empty name, such as pandas' index, is skipped.
    header: Vec<String>,
}

impl CsvFile {
    pub(super) fn new(opened: Opened) -> Result<Self, DataError> {
        let format = opened.format;
        let separator = if format == Format::Tsv { b'\t' } else { b',' };
        let mut records = Records {
            file: opened.path.to_string_lossy().into(),
            bytes: opened.bytes,
            core: ReaderBuilder::new().delimiter(separator).build(),
            line: 1,
            text: vec![0; 1 << 12],
            ends: vec![0; 1 << 6],
        };
        let mut header = Vec::new();
        if let Some(record) = records.next()? {
            for i in 0..record.fields {
                header.push(records.field(i, &record.place)?.trim().to_owned());
            }
        }
        Ok(Self { records, format, header })
    }

    /// Returns the names of the columns.
    pub(super) fn columns(&self) -> Vec<String> {
        self.header.iter().filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Visits every row, with the needed columns.
    pub(super) fn each(
        mut self,
        needed: &[String],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, DataError> {
        let is_needed = |name: &String| needed.contains(name) || needed.iter().any(|n| n == WHOLE);
        let taken: Vec<usize> = (0..self.header.len())
            .filter(|i| !self.header[*i].is_empty() && is_needed(&self.header[*i]))
            .collect();
        for (n, i) in taken.iter().enumerate() {
            if let Some(twin) = taken[..n].iter().find(|twin| self.header[**twin] == self.header[*i]) {
                return Err(DataError::Twins {
                    file: self.records.file.to_string(),
                    column: self.header[*i].clone(),
                    at: [twin + 1, i + 1],
                });
            }
        }
        while let Some(record) = self.records.next()? {
            if record.fields != self.header.len() {
                return Err(DataError::Fields {
                    place: record.place,
                    found: record.fields,
                    expected: self.header.len(),
                    format: self.format,
                });
            }
            let mut row = super::Row::new();
            for i in &taken {
                let field = self.records.field(*i, &record.place)?;
                let value = if field.is_empty() { Value::Null } else { field.into() };
                row.insert(self.header[*i].clone(), value);
            }
            if visit(record.place, row, &[])?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The records of a file, read one by one.
struct Records {
    file: Arc<str>,
    bytes: Box<dyn BufRead>,
    core: Reader,
    /// Number of the next line.
    line: u64,
    /// The unquoted fields of the current record, concatenated.
    text: Vec<u8>,
    /// End of each field in `text`.
    ends: Vec<usize>,
}

/// A record.
struct Record {
    /// The line on which it begins.
    place: Place,
    /// Number of its fields.
    fields: usize,
}

impl Records {
    /// Reads the next record. Blank lines are not records.
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        if !self.skip_line_ends()? {
            return Ok(None);
        }
        let place = self.place(self.line);
        let (mut written, mut fields) = (0, 0);
        loop {
            let here = self.place(self.line);
            let chunk = self.bytes.fill_buf().map_err(|e| DataError::damaged(here, &e))?;
            // A line break ends the last record, unless a quote is open.
            let is_end = chunk.is_empty();
            let input = if is_end { b"\n" } else { chunk };
            let (result, read, wrote, ended) =
                self.core.read_record(input, &mut self.text[written..], &mut self.ends[fields..]);
            if !is_end {
                self.line += newlines(&input[..read]);
                self.bytes.consume(read);
            }
            written += wrote;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty if is_end => return Err(DataError::OpenQuote(place)),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if written < LONGEST_ROW => self.text.resize(2 * written, 0),
                ReadRecordResult::OutputEndsFull if fields < MOST_FIELDS => self.ends.resize(2 * fields, 0),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(DataError::LongRow { place });
                }
                ReadRecordResult::Record => return Ok(Some(Record { place, fields })),
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    /// Skips line ends. Returns false at the end of the file.
    fn skip_line_ends(&mut self) -> Result<bool, DataError> {
        loop {
            let here = self.place(self.line);
            let chunk = self.bytes.fill_buf().map_err(|e| DataError::damaged(here, &e))?;
            let ends = chunk.iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
            let (read, newlines) =
                ends.fold((0, 0), |(read, newlines), byte| (read + 1, newlines + u64::from(*byte == b'\n')));
            let (all, is_end) = (chunk.len(), chunk.is_empty());
            self.line += newlines;
            self.bytes.consume(read);
            if is_end || read < all {
                return Ok(!is_end);
            }
        }
    }

    /// Returns a field of the current record.
    fn field(&self, i: usize, place: &Place) -> Result<&str, DataError> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        std::str::from_utf8(&self.text[start..self.ends[i]]).map_err(|_| DataError::NotUtf8(place.clone()))
    }

    fn place(&self, line: u64) -> Place {
        Place { file: Arc::clone(&self.file), unit: "line", number: line }
    }
}
