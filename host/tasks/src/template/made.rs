//! What a rendering makes: the bytes of all its texts and lists, and how deep its values are nested.
//!
//! A value that is made counts, also if it is dropped again. So a rendering never holds more than [`MOST`].

use std::cell::Cell;
use std::fmt::{self, Write};

use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, Value};

use super::invalid;

/// Bytes that one rendering makes at most.
const MOST: usize = 128 << 20;
/// Lists in lists, and objects in objects. JSON that comes from outside has 128 at most.
pub(super) const DEPTH: usize = 200;
/// What a value takes in a list; in an object there is a key beside it, and a hash.
pub(super) const ITEM: usize = 24;
pub(super) const ENTRY: usize = 64;

/// What a look at a value in another counts: a value that has one of its parts many times takes long to look through.
const LOOK: usize = 16;

/// The filter that counts a text, or the list or object around its values.
pub(super) const COUNTED: &str = "counted";
/// The filter that looks through a value, too, since it may be nested deeper than those that it was made of.
pub(super) const NESTED: &str = "nested";
/// The filter that looks through what becomes an attribute of a namespace.
pub(super) const STORED: &str = "stored";

thread_local! {
    /// What this thread's rendering has made so far.
    static MADE: Cell<usize> = const { Cell::new(0) };
}

/// A rendering begins.
pub(super) fn begin() {
    MADE.set(0);
}

/// Errs if the rendering has made too much, whatever became of it.
pub(super) fn within() -> Result<(), Error> {
    if MADE.get() > MOST { Err(invalid(format!("it makes more than {MOST} bytes"))) } else { Ok(()) }
}

/// Counts bytes before they are made.
pub(super) fn count(bytes: usize) -> Result<(), Error> {
    MADE.set(MADE.get().saturating_add(bytes));
    within()
}

/// Counts a value that was made. What is lazy becomes a list that is not: one lazy list in another has no end.
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

/// Counts a value that may be nested deeper than what it was made of.
pub(super) fn nested(value: Value) -> Result<Value, Error> {
    let value = counted(value)?;
    look_through(&value, 0, false)?;
    Ok(value)
}

/// Looks through what becomes an attribute of a namespace.
pub(super) fn stored(value: Value) -> Result<Value, Error> {
    look_through(&value, 1, true)?;
    Ok(value)
}

/// Errs if a value is nested too deep. A namespace may change, so none may be inside another.
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

/// The keys and values of an object.
pub(super) fn entries(object: &DynObject) -> impl Iterator<Item = (Value, Value)> {
    object.try_iter_pairs().into_iter().flatten()
}

/// Counts a text while it is written, and stops where it is too long.
pub(super) struct Counting<W>(pub W);

impl<W: Write> Write for Counting<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        count(text.len()).map_err(|_| fmt::Error)?;
        self.0.write_str(text)
    }
}

/// Returns what is written, counted.
pub(super) fn text(write: impl FnOnce(&mut Counting<String>) -> fmt::Result) -> Result<String, Error> {
    let mut out = Counting(String::new());
    let written = write(&mut out);
    within()?;
    written.map_err(|_| invalid("a value cannot be written"))?;
    Ok(out.0)
}
