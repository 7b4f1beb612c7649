//! Parquet: the needed columns as JSON values, row by row.
//!
//! Other columns are not read. So a column that the parquet crate cannot convert (it panics at times
//! without a zone and odd lists, for example) does no harm unless it is needed.

use std::fmt::Display;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_base::panics::caught;
use parquet::basic::{Compression, ConvertedType as C, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::DataError;
use super::row::{Odd, Row, Visit, float};
use crate::place::Place;

/// An open parquet file.
pub(super) struct ParquetFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

impl ParquetFile {
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|e| DataError::unreadable(path, &e))?;
        let reader = undamaged(|| SerializedFileReader::new(file))
            .map_err(|e| DataError::NotParquet { path: path.to_owned(), reason: plain(&e) })?;
        Ok(Self { path: path.to_owned(), reader })
    }

    /// Returns the names of the columns, with dots for fields of structs.
    pub(super) fn columns(&self) -> Vec<String> {
        let mut names = Vec::new();
        gather(self.schema().get_fields(), "", &mut names);
        names
    }

    fn schema(&self) -> &Type {
        self.reader.metadata().file_metadata().schema()
    }

    /// Visits every row, with the needed columns.
    pub(super) fn each(
        &self,
        needed: &[String],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, DataError> {
        let projection = self.projection(needed)?;
        let file: Arc<str> = self.path.to_string_lossy().into();
        let place = |number| Place { file: file.clone(), unit: "row", number };
        let mut number = 0;
        for group in 0..self.reader.num_row_groups() {
            let group = undamaged(|| self.reader.get_row_group(group));
            let group = group.map_err(|e| unread(place(number + 1), &e))?;
            let rows = undamaged(|| group.get_row_iter(Some(projection.clone())));
            let mut rows = rows.map_err(|e| unread(place(number + 1), &e))?;
            while let Some(row) =
                undamaged(|| rows.next().transpose()).map_err(|e| unread(place(number + 1), &e))?
            {
                number += 1;
                let columns = row.into_columns();
                let row = object(columns).map_err(|odd| odd.at(place(number)))?;
                if visit(place(number), row, &[])?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the schema of the needed columns, and checks that all of them can be read.
    fn projection(&self, needed: &[String]) -> Result<Type, DataError> {
        let wanted: Vec<&str> = needed.iter().map(String::as_str).collect();
        let fields = prune(self.schema().get_fields(), &wanted);
        let mut leaves = Vec::new();
        gather(&fields, "", &mut leaves);
        for group in self.reader.metadata().row_groups() {
            for column in group.columns() {
                let name = column.column_path().string();
                let readable = matches!(
                    column.compression(),
                    Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
                );
                let is_needed =
                    leaves.iter().any(|leaf| name == *leaf || name.starts_with(&format!("{leaf}.")));
                if is_needed && !readable {
                    let codec = format!("{:?}", column.compression());
                    let codec = codec.split('(').next().unwrap_or(&codec).to_lowercase();
                    return Err(DataError::Codec { path: self.path.clone(), column: name, codec });
                }
            }
        }
        for field in &fields {
            check(field).map_err(|(column, found)| DataError::Unsupported {
                path: self.path.clone(),
                column,
                found,
            })?;
        }
        let damaged = |e: ParquetError| {
            let reason = plain(&e.to_string());
            DataError::NotParquet { path: self.path.clone(), reason }
        };
        Type::group_type_builder(self.schema().name()).with_fields(fields).build().map_err(damaged)
    }
}

/// Runs `read`, which uses the parquet or arrow crates, and returns its result. These crates panic on some
/// damaged files; a panic becomes an error here.
pub fn undamaged<T, E: Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    caught(read).and_then(|done| done.map_err(|error| error.to_string()))
}

/// Returns the fields at these paths only.
fn prune(fields: &[TypePtr], wanted: &[&str]) -> Vec<TypePtr> {
    let mut kept = Vec::new();
    for field in fields {
        let name = field.name();
        if wanted.contains(&name) {
            kept.push(field.clone());
            continue;
        }
        let inside: Vec<&str> =
            wanted.iter().filter_map(|path| path.strip_prefix(name)?.strip_prefix('.')).collect();
        if inside.is_empty() || !is_struct(field) {
            continue;
        }
        let inner = prune(field.get_fields(), &inside);
        let group = Type::group_type_builder(name)
            .with_repetition(field.get_basic_info().repetition())
            .with_fields(inner);
        if let Ok(group) = group.build()
            && !group.get_fields().is_empty()
        {
            kept.push(Arc::new(group));
        }
    }
    kept
}

fn is_struct(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_group() && info.converted_type() == C::NONE && info.repetition() != Repetition::REPEATED
}

/// Checks that the parquet crate can read a field without a panic. Fails with its column and type.
fn check(field: &Type) -> Result<(), (String, String)> {
    let info = field.get_basic_info();
    let unsupported = |found: String| Err((field.name().to_owned(), found));
    if field.is_group() {
        let fields = field.get_fields();
        match info.converted_type() {
            C::NONE if !fields.is_empty() => {}
            C::LIST
                if fields.len() == 1
                    && fields[0].get_basic_info().repetition() == Repetition::REPEATED
                    && (fields[0].is_primitive() || !fields[0].get_fields().is_empty()) => {}
            C::LIST | C::NONE => {
                return unsupported("a group of an odd shape".to_owned());
            }
            other => return unsupported(other.to_string().to_lowercase()),
        }
        return fields.iter().try_for_each(|inner| check(inner));
    }
    let readable = matches!(
        (field.get_physical_type(), info.converted_type()),
        (Physical::BOOLEAN | Physical::FLOAT | Physical::DOUBLE, _)
            | (Physical::INT32, C::INT_8 | C::INT_16 | C::INT_32 | C::UINT_8 | C::UINT_16 | C::UINT_32)
            | (Physical::INT64, C::INT_64 | C::UINT_64)
            | (Physical::INT32 | Physical::INT64, C::NONE)
            | (Physical::BYTE_ARRAY, C::UTF8 | C::ENUM | C::JSON | C::NONE)
    );
    let found = match info.converted_type() {
        C::NONE => field.get_physical_type().to_string(),
        other => other.to_string(),
    };
    if readable { Ok(()) } else { unsupported(found.to_lowercase()) }
}

fn object(columns: Vec<(String, Field)>) -> Result<Row, Odd> {
    columns.into_iter().map(|(name, field)| Ok((name, value(field)?))).collect()
}

fn value(field: Field) -> Result<Value, Odd> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(v) => v.into(),
        Field::Byte(v) => v.into(),
        Field::Short(v) => v.into(),
        Field::Int(v) => v.into(),
        Field::Long(v) => v.into(),
        Field::UByte(v) => v.into(),
        Field::UShort(v) => v.into(),
        Field::UInt(v) => v.into(),
        Field::ULong(v) => v.into(),
        // Through the shortest text: the float 0.1 is 0.100000001490116 as a double.
        Field::Float(v) => float(v.to_string().parse().unwrap_or(f64::from(v)))?,
        Field::Double(v) => float(v)?,
        Field::Str(v) => v.into(),
        Field::Bytes(v) => std::str::from_utf8(v.data()).map_err(|_| Odd::NotUtf8)?.into(),
        Field::Group(row) => Value::Object(object(row.into_columns())?),
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().cloned().map(value).collect::<Result<_, _>>()?)
        }
        Field::MapInternal(_) => return Err(Odd::Kind("a map")),
        Field::Decimal(_) => return Err(Odd::Kind("a decimal")),
        _ => return Err(Odd::Kind("of a kind that is not read here")),
    })
}

/// The error for a row that the parquet crate cannot read. Its message shows every byte of invalid UTF-8.
fn unread(place: Place, error: &str) -> DataError {
    let reason = plain(error);
    if reason.contains("as String. Bytes") || reason.contains("utf-8") || reason.contains("UTF-8") {
        return DataError::NotUtf8(place);
    }
    DataError::Unread { place, reason }
}

fn plain(error: &str) -> String {
    error.strip_prefix("Parquet error: ").unwrap_or(error).trim_end_matches('.').to_owned()
}

fn gather(fields: &[TypePtr], before: &str, names: &mut Vec<String>) {
    for field in fields {
        let name = format!("{before}{}", field.name());
        if is_struct(field) && !field.get_fields().is_empty() {
            gather(field.get_fields(), &format!("{name}."), names);
        } else {
            names.push(name);
        }
    }
}
