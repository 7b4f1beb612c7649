//! Rows: the content of a data file, one object each, with its place.
//!
//! This module knows the formats, but not the meaning of columns.

use std::ops::ControlFlow;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DataError;
use super::arrow_file::ArrowFile;
use super::csv_file::CsvFile;
use super::json_rows::{JsonRow, JsonRows};
use super::opened::Opened;
use super::parquet_file::ParquetFile;
use super::row::{Row, Visit};

/// The format of a data file. Files of text may be compressed with gzip or zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// JSON objects, one per line; blank lines count as lines, not as rows.
    Jsonl,
    /// One JSON array of objects.
    Json,
    /// Values separated by commas, with the columns' names in the first row.
    Csv,
    /// The same, separated by tabs.
    Tsv,
    /// Parquet, uncompressed or with snappy or zstd.
    Parquet,
    /// Arrow IPC, as a file or a stream, uncompressed or with lz4 or zstd.
    Arrow,
}

impl Format {
    /// Name of the format in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "JSON lines",
            Self::Json => "JSON",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Parquet => "parquet",
            Self::Arrow => "Arrow",
        }
    }
}

/// An open data file.
pub struct Rows(Source);

/// A source of rows, by format.
enum Source {
    Json { first: Option<JsonRow>, rest: JsonRows },
    Csv(Box<CsvFile>),
    Parquet(Box<ParquetFile>),
    Arrow(ArrowFile),
}

impl Rows {
    /// Opens a file of the format `given`, or else of the format of its first bytes or its ending. For
    /// JSON, this reads the first row.
    pub fn open(path: &Path, given: Option<Format>) -> Result<Self, DataError> {
        let opened = Opened::open(path, given)?;
        Ok(Self(match opened.format {
            Format::Parquet => Source::Parquet(Box::new(ParquetFile::open(path)?)),
            Format::Arrow => Source::Arrow(ArrowFile::open(opened)?),
            Format::Csv | Format::Tsv => Source::Csv(Box::new(CsvFile::new(opened)?)),
            format @ (Format::Jsonl | Format::Json) => {
                let mut rest = JsonRows::new(opened, format == Format::Json)?;
                Source::Json { first: rest.next()?, rest }
            }
        }))
    }

    /// Returns the names of the columns, with dots for fields of structs; for JSON, those of the first row.
    pub fn columns(&self) -> Vec<String> {
        match &self.0 {
            Source::Json { first, .. } => {
                let mut names = Vec::new();
                if let Some(first) = first {
                    gather(&first.row, "", &mut names);
                }
                names
            }
            Source::Csv(file) => file.columns(),
            Source::Parquet(file) => file.columns(),
            Source::Arrow(file) => file.columns(),
        }
    }

    /// Whether every row has all of [`columns`](Self::columns), as in a table.
    pub fn have_a_schema(&self) -> bool {
        !matches!(self.0, Source::Json { .. })
    }

    /// Whether all values are text, as in CSV.
    pub fn are_text(&self) -> bool {
        matches!(self.0, Source::Csv(_))
    }

    /// Visits every row, in file order. From a table, only the columns `needed` are read; a row lacks those
    /// that the file lacks. `visit` handles the faults of a row.
    pub fn each(self, needed: &[String], visit: &mut Visit<'_>) -> Result<ControlFlow<()>, DataError> {
        let (first, mut rest) = match self.0 {
            Source::Csv(file) => return file.each(needed, visit),
            Source::Parquet(file) => return file.each(needed, visit),
            Source::Arrow(file) => return file.each(needed, visit),
            Source::Json { first, rest } => (first, rest),
        };
        let mut next = first;
        while let Some(JsonRow { place, row, faults }) = next {
            if visit(place, row, &faults)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            next = rest.next()?;
        }
        Ok(ControlFlow::Continue(()))
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
