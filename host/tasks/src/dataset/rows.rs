//! Rows: what a data file holds, one object each, with the place where it stands.
//!
//! Knows the formats, and nothing of which column means what.

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
    /// JSON objects, one on each line; blank lines count as lines, not as rows.
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
    /// Its name in a sentence.
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

/// By its format.
enum Source {
    Json { first: Option<JsonRow>, rest: JsonRows },
    Csv(Box<CsvFile>),
    Parquet(Box<ParquetFile>),
    Arrow(ArrowFile),
}

impl Rows {
    /// Opens a file of the format `given`, or else of the one that its first bytes or its ending name. Of JSON, the
    /// first row is read.
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

    /// The columns' names, with dots for what lies in structs: those of the first row of JSON, or those of a table.
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

    /// Whether values are text alone, as in CSV.
    pub fn are_text(&self) -> bool {
        matches!(self.0, Source::Csv(_))
    }

    /// Visits every row, in the file's order. Of a table, only the columns `needed` are read; those of them that the
    /// file lacks are missing in the row. What to do with a row's faults is up to `visit`.
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
