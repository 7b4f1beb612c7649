//! `metrics.jsonl`: one JSON object per step, with its metrics by name. The first evaluation has its own
//! line, and so does an evaluation after the last step. [`super::named`] describes the names.

use std::io::Write as _;
use std::path::Path;

use allot_base::{Error, Result};
use serde_json::{Map, Value};

use allot_record::{Appended, Kept, Mark};

/// The file of a run's metrics by step.
#[derive(Debug)]
pub struct Metrics(Appended);

impl Metrics {
    /// Creates a new file. Fails if it already exists.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| Error::file("write", path, &e))
    }

    /// Opens the file of a resumed run. Lines after the checkpoint's mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self(kept.cut()?))
    }

    /// Wraps a file to which lines are written.
    pub fn to(file: Appended) -> Self {
        Self(file)
    }

    /// Appends a step's line, `step` first, and passes it to the operating system. A number that is not
    /// finite is `null`, since JSON cannot express it. If a name has two values, the later one counts.
    pub fn write(&mut self, step: u32, values: &[(String, f64)]) -> Result<()> {
        let mut object = Map::from_iter([("step".to_owned(), Value::from(step))]);
        let others = values.iter().filter(|(name, _)| name != "step");
        object.extend(others.map(|(name, value)| (name.clone(), Value::from(*value))));
        let line = format!("{}\n", Value::Object(object));
        self.0.write_all(line.as_bytes()).map_err(|e| Error::file("write", self.0.path(), &e))
    }

    /// Returns how far the file is written; a checkpoint keeps it for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the lines are on disk. Call it before a checkpoint that depends on them.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| Error::file("write", self.0.path(), &e))
    }
}
