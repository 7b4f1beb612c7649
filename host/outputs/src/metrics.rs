//! `metrics.jsonl`: a line of JSON for each step, its numbers by name, and one for a score that came with no
//! step: the first, and the last where it was taken behind the last step. What the names mean is in
//! [`super::named`].

use std::io::Write as _;
use std::path::Path;

use allot_base::{Error, Result};
use serde_json::{Map, Value};

use allot_record::{Appended, Kept, Mark};

/// The file of a run's numbers by step.
#[derive(Debug)]
pub struct Metrics(Appended);

impl Metrics {
    /// A new file. Fails where there is one already.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| Error::file("write", path, &e))
    }

    /// The file of a run that goes on from a checkpoint: lines after its mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self(kept.cut()?))
    }

    /// Lines written to a file.
    pub fn to(file: Appended) -> Self {
        Self(file)
    }

    /// Appends a step's line, the step first, and hands it to the operating system. A number that is not
    /// finite is `null`, as JSON has no word for it; of two by one name the later one counts.
    pub fn write(&mut self, step: u32, values: &[(String, f64)]) -> Result<()> {
        let mut object = Map::from_iter([("step".to_owned(), Value::from(step))]);
        let others = values.iter().filter(|(name, _)| name != "step");
        object.extend(others.map(|(name, value)| (name.clone(), Value::from(*value))));
        let line = format!("{}\n", Value::Object(object));
        self.0.write_all(line.as_bytes()).map_err(|e| Error::file("write", self.0.path(), &e))
    }

    /// How far it has come: what a checkpoint keeps for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the lines are on the disk. To be called before a checkpoint that counts on them.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| Error::file("write", self.0.path(), &e))
    }
}
