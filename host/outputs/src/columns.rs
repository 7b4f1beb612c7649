//! Writing rows as the columns of a parquet file.
//!
//! Counts are signed 64-bit integers, because readers subtract them (a version from a step, say). Unsigned
//! integers would wrap around in numpy and fail in duckdb.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

/// A column's values for lines of type `L`. A kind without an `Option` has a value in every line.
pub(super) enum Column<L> {
    Text(fn(&L) -> ByteArray),
    MaybeText(fn(&L) -> Option<ByteArray>),
    Count(fn(&L) -> i64),
    MaybeCount(fn(&L) -> Option<i64>),
    MaybeDouble(fn(&L) -> Option<f64>),
    MaybeFloat(fn(&L) -> Option<f32>),
    Bool(fn(&L) -> bool),
    MaybeBool(fn(&L) -> Option<bool>),
}

/// Columns by name, in their order.
pub(super) type Columns<L> = Vec<(&'static str, Column<L>)>;

/// A parquet file that is written one row group at a time. Equal lines give equal bytes.
pub(super) struct Sheet<L, W: Write + Send> {
    columns: Columns<L>,
    file: SerializedFileWriter<W>,
}

impl<L, W: Write + Send> Sheet<L, W> {
    /// Creates a file with these columns. `rising` names an increasing column, which is delta-encoded. The
    /// values of columns in `plain` rarely repeat, so a dictionary would not pay off.
    pub(super) fn new(to: W, columns: Columns<L>, rising: &str, plain: &[&str]) -> Parquet<Self> {
        let fields = columns.iter().map(|(name, column)| {
            let (physical, logical, repetition) = column.kind();
            let kind = Type::primitive_type_builder(name, physical);
            Ok(Arc::new(kind.with_logical_type(logical).with_repetition(repetition).build()?))
        });
        let schema = Type::group_type_builder("rollout").with_fields(fields.collect::<Parquet<_>>()?);
        let file =
            SerializedFileWriter::new(to, Arc::new(schema.build()?), Arc::new(properties(rising, plain)))?;
        Ok(Self { columns, file })
    }

    /// Adds a row group.
    pub(super) fn write(&mut self, lines: &[L]) -> Parquet<()> {
        let mut group = self.file.next_row_group()?;
        for (_, column) in &self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            column.write(&mut writer, lines)?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the end of the file and returns the writer.
    pub(super) fn finish(self) -> Parquet<W> {
        self.file.into_inner()
    }
}

fn properties(rising: &str, plain: &[&str]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        // In the form that the format specifies: readers parse it to work around bugs of a known writer.
        .set_created_by(concat!("allot version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // A row group holds all rows of one `write` call.
        .set_max_row_group_row_count(None)
        .set_column_dictionary_enabled(ColumnPath::from(rising), false)
        .set_column_encoding(ColumnPath::from(rising), Encoding::DELTA_BINARY_PACKED);
    for name in plain {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*name), false);
    }
    properties.build()
}

/// Returns the I/O error that parquet passes on, or wraps parquet's own error.
pub(super) fn told(error: ParquetError) -> std::io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    }
}

impl<L> Column<L> {
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
            Self::MaybeBool(_) => (Physical::BOOLEAN, None, maybe),
        }
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>, lines: &[L]) -> Parquet<()> {
        match self {
            Self::Text(get) => always::<ByteArrayType>(to, lines.iter().map(get).collect()),
            Self::MaybeText(get) => maybe::<ByteArrayType>(to, lines.iter().map(get)),
            Self::Count(get) => always::<Int64Type>(to, lines.iter().map(get).collect()),
            Self::MaybeCount(get) => maybe::<Int64Type>(to, lines.iter().map(get)),
            Self::MaybeDouble(get) => maybe::<DoubleType>(to, lines.iter().map(get)),
            Self::MaybeFloat(get) => maybe::<FloatType>(to, lines.iter().map(get)),
            Self::Bool(get) => always::<BoolType>(to, lines.iter().map(get).collect()),
            Self::MaybeBool(get) => maybe::<BoolType>(to, lines.iter().map(get)),
        }
    }
}

fn always<T: DataType>(to: &mut SerializedColumnWriter<'_>, values: Vec<T::T>) -> Parquet<()> {
    to.typed::<T>().write_batch(&values, None, None)?;
    Ok(())
}

/// Writes the values that exist, and a definition level for each line: 1 with a value, 0 without.
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
