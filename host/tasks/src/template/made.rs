//! Limits of a rendering: the bytes of all its texts and lists, and the depth of its values.
//!
//! A value counts once it is made, even if dropped again. So a rendering never holds more than [`MOST`].

use std::cell::Cell;
use std::fmt::{self, Write};

use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, Value};

use super::invalid;

/// Maximum number of bytes that a rendering makes.
const MOST: usize = 128 << 20;
/// Maximum depth of lists and objects. JSON from outside has a depth of at most 128.
pub(super) const DEPTH: usize = 200;
/// Bytes of a value in a list, and of an entry of an object, with its key and hash.
pub(super) const ITEM: usize = 24;
pub(super) const ENTRY: usize = 64;

/// Bytes counted per visit of a nested value: one that contains a part many times takes long to search.
const LOOK: usize = 16;

/// The filter that counts a text, or the list or object around its values.
pub(super) const COUNTED: &str = "counted";
/// The filter that also searches a value, which may be nested deeper than the values it was made from.
pub(super) const NESTED: &str = "nested";
/// The filter that searches a value before it becomes an attribute of a namespace.
pub(super) const STORED: &str = "stored";

thread_local! {
    /// Bytes that this thread's rendering has made so far.
    static MADE: Cell<usize> = const { Cell::new(0) };
}

/// Resets the count for a new rendering.
pub(super) fn begin() {
    MADE.set(0);
}

/// Fails if the rendering has made too many bytes, even if they were dropped.
pub(super) fn within() -> Result<(), Error> {
    if MADE.get() > MOST { Err(invalid(format!("it makes more than {MOST} bytes"))) } else { Ok(()) }
}

/// Counts bytes before they are made.
pub(super) fn count(bytes: usize) -> Result<(), Error> {
    MADE.set(MADE.get().saturating_add(bytes));
    within()
}

/// Counts a value. A lazy one becomes a list of its items: one lazy list in another could be endless.
pub(super) fn counted(value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        count(text.len())?;
    } else if let Some(object) = value.as_object() {
        match value.kind() {
            ValueKind::Map => count(ENTRY * object.enumerator_len().unwrap_or_default())?,
            ValueKind::Seq => count(ITEM * object.enumerator_len().unwrap_or_default())?,
            ValueKind::Iterable => {
                let items = listed(&value)?;
                return Ok(Value::make_object_iterable(items, |items| Box::new(items.iter().cloned())));
            }
            _ => {}
        }
    }
    Ok(value)
}

/// Counts the items of a list, one by one, and returns them.
pub(super) fn listed(value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        count(ITEM)?;
        items.push(item?);
    }
    Ok(items)
}

/// Counts a value that may be nested deeper than the values it was made from.
pub(super) fn nested(value: Value) -> Result<Value, Error> {
    let value = counted(value)?;
    look_through(&value, 0, false)?;
    Ok(value)
}

/// Checks a value that becomes an attribute of a namespace.
pub(super) fn stored(value: Value) -> Result<Value, Error> {
    look_through(&value, 1, true)?;
    Ok(value)
}

/// Fails if a value is nested too deep. A namespace can change, so it may not be inside another one.
fn look_through(value: &Value, depth: usize, within_namespace: bool) -> Result<(), Error> {
    let Some(object) = value.as_object() else { return Ok(()) };
    let kind = object.type_name();
    let is_namespace = kind.ends_with("::Namespace");
    if is_namespace && within_namespace {
        return Err(invalid("a namespace cannot be an attribute of a namespace"));
    }
    if kind.ends_with("::Loop") && depth > 0 {
        return Err(invalid("`loop` cannot be part of a value"));
    }
    if depth > DEPTH {
        return Err(invalid(format!("a value is nested more than {DEPTH} deep")));
    }
    let inside = within_namespace || is_namespace;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                count(LOOK)?;
                look_through(&item, depth + 1, inside)?;
            }
        }
        ValueKind::Map => {
            for (key, item) in entries(object) {
                count(LOOK)?;
                look_through(&key, depth + 1, inside)?;
                look_through(&item, depth + 1, inside)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the keys and values of an object.
pub(super) fn entries(object: &DynObject) -> impl Iterator<Item = (Value, Value)> {
    object.try_iter_pairs().into_iter().flatten()
}

/// Counts a text while it is written, and fails at the limit.
pub(super) struct Counting<W>(pub W);

impl<W: Write> Write for Counting<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        count(text.len()).map_err(|_| fmt::Error)?;
        self.0.write_str(text)
    }
}

/// Returns the written text, after counting it.
pub(super) fn text(write: impl FnOnce(&mut Counting<String>) -> fmt::Result) -> Result<String, Error> {
    let mut out = Counting(String::new());
    let written = write(&mut out);
    within()?;
    written.map_err(|_| invalid("a value cannot be written"))?;
    Ok(out.0)
}
