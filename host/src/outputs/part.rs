//! One part of the table of rollouts: a parquet file with a row group, and the columns it has.
//!
//! It knows how a row becomes parquet and how a file comes to be whole or not at all; what a row means is
//! told in [`super::rollouts`]. Counts are signed 64-bit integers: readers subtract them (a step and a
//! version, say), and unsigned ones would wrap around in numpy and fail in duckdb.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::rollouts::{Purpose, Settled};
use crate::trouble::{Result, Trouble};

/// A row, and the run that it belongs to.
struct Line<'a> {
    run: &'a str,
    settled: &'a Settled,
}

/// What a column has for a line. What gives no option is in every line.
enum Column {
    Text(fn(&Line<'_>) -> ByteArray),
    MaybeText(fn(&Line<'_>) -> Option<ByteArray>),
    Count(fn(&Line<'_>) -> i64),
    MaybeCount(fn(&Line<'_>) -> Option<i64>),
    MaybeDouble(fn(&Line<'_>) -> Option<f64>),
    MaybeFloat(fn(&Line<'_>) -> Option<f32>),
    Bool(fn(&Line<'_>) -> bool),
}

/// The columns, in their order.
const COLUMNS: [(&str, Column); 20] = [
    ("run", Column::Text(|l| l.run.into())),
    ("step", Column::Count(|l| l.settled.row.step.into())),
    ("round", Column::MaybeCount(|l| l.settled.row.round.map(Into::into))),
    ("rollout", Column::Count(|l| l.settled.row.rollout.0.cast_signed())),
    ("prompt", Column::Count(|l| l.settled.row.prompt.0.into())),
    ("problem", Column::Text(|l| l.settled.row.problem.as_str().into())),
    ("source", Column::Text(|l| l.settled.row.source.as_str().into())),
    ("purpose", Column::Text(|l| purpose(l).0.into())),
    ("set", Column::MaybeText(|l| purpose(l).1.map(Into::into))),
    ("position", Column::Count(|l| l.settled.row.position.into())),
    ("version", Column::Count(|l| l.settled.row.version.into())),
    ("tokens", Column::Count(|l| l.settled.row.tokens.into())),
    ("truncated", Column::Bool(|l| l.settled.row.truncated)),
    ("log_prob", Column::MaybeDouble(|l| l.settled.row.log_prob)),
    ("reward", Column::MaybeFloat(|l| l.settled.row.reward)),
    ("correct", Column::Bool(|l| l.settled.row.correct)),
    ("age", Column::MaybeCount(|l| l.settled.age.map(Into::into))),
    ("advantage", Column::MaybeFloat(|l| l.settled.advantage)),
    ("fate", Column::Text(|l| l.settled.fate.into())),
    ("text", Column::MaybeText(|l| l.settled.row.text.as_deref().map(Into::into))),
];

/// A purpose's name, and the evaluation's set.
fn purpose<'a>(line: &Line<'a>) -> (&'static str, Option<&'a str>) {
    match &line.settled.row.purpose {
        Purpose::Pilot => ("pilot", None),
        Purpose::Commit => ("commit", None),
        Purpose::Evaluation(set) => ("evaluation", Some(set)),
    }
}

/// Where a part lies.
pub fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("part-{number:05}.parquet"))
}

/// The numbers of the parts in a folder. Other files are none of our business.
pub fn numbers(folder: &Path) -> Result<BTreeSet<u32>> {
    let trouble = |e: std::io::Error| Trouble::file("read", folder, &e);
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(trouble)? {
        let found = entry.map_err(trouble)?.path();
        let name = found.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|n| n.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok());
        numbers.extend(number.filter(|number| path(folder, *number) == found));
    }
    Ok(numbers)
}

/// Writes a part under a name that no reader takes for one, and renames it once it is on the disk.
pub fn write(folder: &Path, number: u32, run: &str, rows: &[Settled]) -> Result<()> {
    // A dot in front: pyarrow reads every other file of a folder.
    let (passing, path) = (folder.join(format!(".part-{number:05}")), path(folder, number));
    let written = File::create(&passing)
        .and_then(|file| {
            let mut buffered = BufWriter::with_capacity(1 << 20, file);
            encode(&mut buffered, run, rows).map_err(told)?;
            buffered.into_inner()?.sync_all()
        })
        .and_then(|()| std::fs::rename(&passing, &path))
        .and_then(|()| lasting(folder));
    written.map_err(|e| {
        // The reason that it failed matters more than a second failure.
        let _ = std::fs::remove_file(&passing);
        Trouble::file("write", &path, &e)
    })
}

/// What the disk said, where it is a disk's error that parquet passes on.
fn told(error: ParquetError) -> std::io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    }
}

/// Makes a rename last: on Unix it is the folder's content, and lasts once the folder is on the disk.
fn lasting(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The parquet file of some rows. The same rows give the same bytes.
fn encode(to: impl Write + Send, run: &str, rows: &[Settled]) -> Parquet<()> {
    let lines: Vec<Line<'_>> = rows.iter().map(|settled| Line { run, settled }).collect();
    let mut file = SerializedFileWriter::new(to, Arc::new(schema()?), Arc::new(properties()))?;
    let mut group = file.next_row_group()?;
    for (_, column) in &COLUMNS {
        let Some(mut writer) = group.next_column()? else { break };
        column.write(&mut writer, &lines)?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

fn schema() -> Parquet<Type> {
    let fields = COLUMNS.iter().map(|(name, column)| {
        let (physical, logical, repetition) = column.kind();
        let kind = Type::primitive_type_builder(name, physical);
        Ok(Arc::new(kind.with_logical_type(logical).with_repetition(repetition).build()?))
    });
    Type::group_type_builder("rollout").with_fields(fields.collect::<Parquet<_>>()?).build()
}

fn properties() -> WriterProperties {
    let column = |name: &str| ColumnPath::from(name);
    WriterProperties::builder()
        // In the words of the format: readers parse it, to know whose mistakes to expect.
        .set_created_by(concat!("allot version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // A part is one row group, whatever its length.
        .set_max_row_group_row_count(None)
        // Numbers that rise, and values that hardly ever come twice: a dictionary would only cost.
        .set_column_dictionary_enabled(column("rollout"), false)
        .set_column_encoding(column("rollout"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(column("log_prob"), false)
        .set_column_dictionary_enabled(column("text"), false)
        .build()
}

impl Column {
    fn kind(&self) -> (Physical, Option<LogicalType>, Repetition) {
        let (always, maybe) = (Repetition::REQUIRED, Repetition::OPTIONAL);
        match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), always),
            Self::MaybeText(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), maybe),
            Self::Count(_) => (Physical::INT64, None, always),
            Self::MaybeCount(_) => (Physical::INT64, None, maybe),
            Self::MaybeDouble(_) => (Physical::DOUBLE, None, maybe),
            Self::MaybeFloat(_) => (Physical::FLOAT, None, maybe),
            Self::Bool(_) => (Physical::BOOLEAN, None, always),
        }
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>, lines: &[Line<'_>]) -> Parquet<()> {
        match self {
            Self::Text(get) => always::<ByteArrayType>(to, lines.iter().map(get).collect()),
            Self::MaybeText(get) => maybe::<ByteArrayType>(to, lines.iter().map(get)),
            Self::Count(get) => always::<Int64Type>(to, lines.iter().map(get).collect()),
            Self::MaybeCount(get) => maybe::<Int64Type>(to, lines.iter().map(get)),
            Self::MaybeDouble(get) => maybe::<DoubleType>(to, lines.iter().map(get)),
            Self::MaybeFloat(get) => maybe::<FloatType>(to, lines.iter().map(get)),
            Self::Bool(get) => always::<BoolType>(to, lines.iter().map(get).collect()),
        }
    }
}

fn always<T: DataType>(to: &mut SerializedColumnWriter<'_>, values: Vec<T::T>) -> Parquet<()> {
    to.typed::<T>().write_batch(&values, None, None)?;
    Ok(())
}

/// The values that are there, and for each line whether it has one.
fn maybe<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Parquet<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    to.typed::<T>().write_batch(&values, Some(&there), None)?;
    Ok(())
}
