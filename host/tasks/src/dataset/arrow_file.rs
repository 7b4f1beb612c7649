//! Arrow IPC: the needed columns as JSON values, row by row. A file is a stream between a signature and a
//! footer, so files and streams are both read from start to end, one batch at a time.
//!
//! Lengths in a damaged file are compared with the bytes that exist before memory is allocated. The arrow
//! crates check the rest.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use allot_base::panics::caught;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, downcast_dictionary_array};
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_ipc::convert::{MessageBuffer, try_fb_to_schema};
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_schema::{ArrowError, DataType, Fields, Schema, SchemaRef};
use serde_json::Value;

use super::DataError;
use super::opened::Opened;
use super::parquet_file::undamaged;
use super::row::{Odd, Row, Visit, float};
use crate::place::Place;

/// Signature of a file, with its padding. A stream has none.
const SIGNATURE: &[u8] = b"ARROW1\0\0";

/// Limits in bytes, of a batch's description and of the unpacked size of its compressed buffers.
const LONGEST_HEAD: u64 = 64 << 20;
const MOST_UNPACKED: u64 = 2 << 30;

/// An open Arrow file.
pub(super) struct ArrowFile {
    path: PathBuf,
    bytes: Box<dyn BufRead>,
    /// Whether a footer follows the last batch.
    has_footer: bool,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl ArrowFile {
    pub(super) fn open(opened: Opened) -> Result<Self, DataError> {
        let Opened { path, bytes, .. } = opened;
        let schema = Arc::new(Schema::empty());
        let mut file = Self { path, bytes, has_footer: false, schema, dictionaries: HashMap::new() };
        let schema = undamaged(|| file.read_schema());
        file.schema =
            schema.map_err(|e| DataError::NotArrow { path: file.path.clone(), reason: plain(&e) })?;
        Ok(file)
    }

    /// Returns the names of the columns, with dots for fields of structs.
    pub(super) fn columns(&self) -> Vec<String> {
        let mut names = Vec::new();
        gather(self.schema.fields(), "", &mut names);
        names
    }

    /// Visits every row, with the needed columns.
    pub(super) fn each(
        mut self,
        needed: &[String],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, DataError> {
        let wanted: Vec<&str> = needed.iter().map(String::as_str).collect();
        let taken = taken(self.schema.fields(), &wanted);
        for (n, column) in taken.iter().enumerate() {
            if let Some(twin) = taken[..n].iter().find(|twin| twin.name == column.name) {
                return Err(DataError::Twins {
                    file: self.path.display().to_string(),
                    column: column.name.clone(),
                    at: [twin.at + 1, column.at + 1],
                });
            }
            column.check(self.schema.field(column.at).data_type()).map_err(|(column, found)| {
                DataError::Unsupported { path: self.path.clone(), column, found }
            })?;
        }
        let file: Arc<str> = self.path.to_string_lossy().into();
        let place = |number| Place { file: Arc::clone(&file), unit: "row", number };
        let mut number = 0;
        loop {
            let batch = undamaged(|| self.next_batch(&taken));
            let batch =
                batch.map_err(|e| DataError::Broken { place: place(number + 1), reason: plain(&e) })?;
            let Some(batch) = batch else { return Ok(ControlFlow::Continue(())) };
            let columns: Vec<(&Taken, &ArrayRef)> = taken.iter().zip(batch.columns()).collect();
            for i in 0..batch.num_rows() {
                number += 1;
                let row = caught(|| object(&columns, i));
                let row = row.map_err(|reason| DataError::Broken { place: place(number), reason })?;
                let row = row.map_err(|odd| odd.at(place(number)))?;
                if visit(place(number), row, &[])?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    fn read_schema(&mut self) -> Result<SchemaRef, ArrowError> {
        self.has_footer = self.bytes.fill_buf()?.starts_with(SIGNATURE);
        if self.has_footer {
            self.bytes.consume(SIGNATURE.len());
        }
        // The arrow crates pad the signature to 64 bytes.
        while self.has_footer && self.bytes.fill_buf()?.starts_with(&[0; 8]) {
            self.bytes.consume(8);
        }
        let Some((head, _)) = self.message()? else { return Err(odd("it has no schema")) };
        let schema =
            head.as_ref().header_as_schema().ok_or_else(|| odd("it does not begin with a schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(odd("its numbers have the byte order of another kind of machine"));
        }
        try_fb_to_schema(schema).map(Arc::new)
    }

    /// Returns the next batch of rows, with the taken columns.
    fn next_batch(&mut self, taken: &[Taken]) -> Result<Option<RecordBatch>, ArrowError> {
        let columns: Vec<usize> = taken.iter().map(|column| column.at).collect();
        while let Some((head, body)) = self.message()? {
            let (message, body) = (head.as_ref(), Buffer::from_vec(body));
            let version = message.version();
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    let batch =
                        message.header_as_dictionary_batch().ok_or_else(|| odd("a dictionary is missing"))?;
                    batch.data().map_or(Ok(()), |data| bounded(data, &body))?;
                    read_dictionary(&body, batch, &self.schema, &mut self.dictionaries, &version)?;
                }
                MessageHeader::RecordBatch => {
                    let batch = message.header_as_record_batch().ok_or_else(|| odd("a batch is missing"))?;
                    bounded(batch, &body)?;
                    let schema = Arc::clone(&self.schema);
                    let dictionaries = &self.dictionaries;
                    let batch =
                        read_record_batch(&body, batch, schema, dictionaries, Some(&columns), &version)?;
                    // Columns of nulls have no bytes, so a damaged batch could claim any number of rows.
                    if batch.num_rows() > 8 * batch.get_array_memory_size() + (1 << 20) {
                        return Err(odd("a batch has more rows than its bytes can hold"));
                    }
                    return Ok(Some(batch));
                }
                _ => return Err(odd("a message in it is neither a batch of rows nor a dictionary")),
            }
        }
        Ok(None)
    }

    /// Returns the next message: its description and its body.
    fn message(&mut self) -> Result<Option<(MessageBuffer, Vec<u8>)>, ArrowError> {
        let start = self.exactly(4)?;
        if start.is_empty() && !self.has_footer {
            return Ok(None);
        }
        // Files from before Arrow 0.15 have no marker before the length.
        let length = if start == [0xFF; 4] { self.exactly(4)? } else { start };
        let length: [u8; 4] = length.try_into().map_err(|_| odd(ENDS_EARLY))?;
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(None);
        }
        if length > LONGEST_HEAD {
            return Err(odd("a message in it claims to be longer than any is"));
        }
        let head = self.exactly(length)?;
        if head.len() as u64 != length {
            return Err(odd(ENDS_EARLY));
        }
        let head = MessageBuffer::try_new(head.into())?;
        let length = head.as_ref().bodyLength();
        let length = u64::try_from(length).map_err(|_| odd("a message in it claims a negative length"))?;
        let body = self.exactly(length)?;
        if body.len() as u64 != length {
            return Err(odd(ENDS_EARLY));
        }
        Ok(Some((head, body)))
    }

    /// Returns the next `length` bytes, or all that are left.
    fn exactly(&mut self, length: u64) -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        (&mut self.bytes).take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

const ENDS_EARLY: &str = "it ends in the middle of a batch";

fn odd(reason: &str) -> ArrowError {
    ArrowError::IpcError(reason.into())
}

/// Returns an error's message without its kind.
fn plain(error: &str) -> String {
    let kinds =
        ["Ipc error: ", "Parser error: ", "Invalid argument error: ", "External error: ", "Io error: "];
    kinds.iter().find_map(|kind| error.strip_prefix(kind)).unwrap_or(error).to_owned()
}

/// Fails if the compressed buffers of a batch claim too large an unpacked size.
fn bounded(batch: arrow_ipc::RecordBatch<'_>, body: &Buffer) -> Result<(), ArrowError> {
    if batch.compression().is_none() {
        return Ok(());
    }
    let claimed = |buffer: &arrow_ipc::Buffer| {
        let start = usize::try_from(buffer.offset()).ok().filter(|_| buffer.length() >= 8)?;
        let length: [u8; 8] = body.get(start..start.checked_add(8)?)?.try_into().ok()?;
        // Minus one means that the buffer is not compressed.
        Some(u64::try_from(i64::from_le_bytes(length)).unwrap_or(0))
    };
    let all = batch.buffers().into_iter().flatten().filter_map(claimed).fold(0, u64::saturating_add);
    if all > MOST_UNPACKED {
        return Err(odd(&format!("a batch unpacks to {all} bytes; expected at most {MOST_UNPACKED}")));
    }
    Ok(())
}

fn gather(fields: &Fields, before: &str, names: &mut Vec<String>) {
    for field in fields {
        let name = format!("{before}{}", field.name());
        match field.data_type() {
            DataType::Struct(inner) if !inner.is_empty() => gather(inner, &format!("{name}."), names),
            _ => names.push(name),
        }
    }
}

/// A column to read, or a field of a struct.
struct Taken {
    at: usize,
    name: String,
    /// The fields to read, if it is a struct of which only some are needed.
    inside: Option<Vec<Taken>>,
}

/// Returns the fields at these paths only.
fn taken(fields: &Fields, wanted: &[&str]) -> Vec<Taken> {
    let mut all = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let name = field.name();
        let mut inside = None;
        if !wanted.contains(&name.as_str()) {
            let DataType::Struct(inner) = field.data_type() else { continue };
            let paths: Vec<&str> = wanted
                .iter()
                .filter_map(|path| path.strip_prefix(name.as_str())?.strip_prefix('.'))
                .collect();
            let some = taken(inner, &paths);
            if some.is_empty() {
                continue;
            }
            inside = Some(some);
        }
        all.push(Taken { at, name: name.clone(), inside });
    }
    all
}

impl Taken {
    /// Fails with the column and its type if the type cannot be read.
    fn check(&self, found: &DataType) -> Result<(), (String, String)> {
        match (found, &self.inside) {
            (DataType::Struct(fields), Some(inside)) => {
                inside.iter().try_for_each(|field| field.check(fields[field.at].data_type()))
            }
            _ => readable(found).map_err(|found| (self.name.clone(), found.to_string().to_lowercase())),
        }
    }
}

/// Fails with the part of a type that cannot be read.
fn readable(found: &DataType) -> Result<(), &DataType> {
    use DataType as T;
    match found {
        T::Null | T::Boolean | T::Binary | T::LargeBinary | T::BinaryView => Ok(()),
        simple if simple.is_integer() || simple.is_floating() || simple.is_string() => Ok(()),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => readable(item.data_type()),
        T::Struct(fields) => fields.iter().try_for_each(|field| readable(field.data_type())),
        T::Dictionary(_, values) => readable(values),
        other => Err(other),
    }
}

/// Returns a row's columns or a struct's fields as an object.
fn object(columns: &[(&Taken, &ArrayRef)], i: usize) -> Result<Row, Odd> {
    let field = |(taken, array): &(&Taken, &ArrayRef)| {
        let value = match (&taken.inside, array.as_struct_opt()) {
            (Some(inside), Some(of)) if of.is_valid(i) => {
                let fields: Vec<_> = inside.iter().map(|field| (field, of.column(field.at))).collect();
                Value::Object(object(&fields, i)?)
            }
            _ => value(array, i)?,
        };
        Ok((taken.name.clone(), value))
    };
    columns.iter().map(field).collect()
}

/// Returns the value at index `i` of an array.
fn value(array: &dyn Array, i: usize) -> Result<Value, Odd> {
    use DataType as T;
    if array.is_null(i) {
        return Ok(Value::Null);
    }
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(Value::from).map_err(|_| Odd::NotUtf8);
    let list = |items: ArrayRef| {
        (0..items.len()).map(|i| value(&items, i)).collect::<Result<_, _>>().map(Value::Array)
    };
    Ok(match array.data_type() {
        T::Null => Value::Null,
        T::Boolean => array.as_boolean().value(i).into(),
        T::Int8 => array.as_primitive::<Int8Type>().value(i).into(),
        T::Int16 => array.as_primitive::<Int16Type>().value(i).into(),
        T::Int32 => array.as_primitive::<Int32Type>().value(i).into(),
        T::Int64 => array.as_primitive::<Int64Type>().value(i).into(),
        T::UInt8 => array.as_primitive::<UInt8Type>().value(i).into(),
        T::UInt16 => array.as_primitive::<UInt16Type>().value(i).into(),
        T::UInt32 => array.as_primitive::<UInt32Type>().value(i).into(),
        T::UInt64 => array.as_primitive::<UInt64Type>().value(i).into(),
        // Through the shortest text: the float 0.1 is 0.100000001490116 as a double.
        T::Float16 => shortest(array.as_primitive::<Float16Type>().value(i))?,
        T::Float32 => shortest(array.as_primitive::<Float32Type>().value(i))?,
        T::Float64 => float(array.as_primitive::<Float64Type>().value(i))?,
        T::Utf8 => array.as_string::<i32>().value(i).into(),
        T::LargeUtf8 => array.as_string::<i64>().value(i).into(),
        T::Utf8View => array.as_string_view().value(i).into(),
        T::Binary => text(array.as_binary::<i32>().value(i))?,
        T::LargeBinary => text(array.as_binary::<i64>().value(i))?,
        T::BinaryView => text(array.as_binary_view().value(i))?,
        T::List(_) => list(array.as_list::<i32>().value(i))?,
        T::LargeList(_) => list(array.as_list::<i64>().value(i))?,
        T::FixedSizeList(..) => list(array.as_fixed_size_list().value(i))?,
        T::Struct(fields) => {
            let of = array.as_struct().columns();
            let field = |(field, of): (&Arc<arrow_schema::Field>, &ArrayRef)| {
                Ok((field.name().clone(), value(of, i)?))
            };
            Value::Object(fields.iter().zip(of).map(field).collect::<Result<_, _>>()?)
        }
        T::Dictionary(..) => downcast_dictionary_array!(
            array => array.key(i).map_or(Ok(Value::Null), |key| value(array.values(), key))?,
            _ => return Err(Odd::Kind("of a kind that is not read here"))
        ),
        _ => return Err(Odd::Kind("of a kind that is not read here")),
    })
}

fn shortest(number: impl std::fmt::Display) -> Result<Value, Odd> {
    float(number.to_string().parse().unwrap_or(f64::NAN))
}
