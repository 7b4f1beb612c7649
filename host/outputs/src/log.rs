//! `log.jsonl`: log lines written by the policy, each as a JSON object with step and round. JSON escapes
//! any text of a guest, so a terminal does not interpret it.

use std::io::Write as _;
use std::path::Path;

use allot_allocation::log::LogLine;
use allot_base::{Error, Result};
use allot_record::{Appended, Kept, Mark};
use serde_json::json;

/// The file of a policy's log lines.
#[derive(Debug)]
pub struct Log(Appended);

impl Log {
    /// Creates a new file. Fails if it already exists.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| Error::file("write", path, &e))
    }

    /// Opens the file of a resumed run. Lines after the checkpoint's mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self(kept.cut()?))
    }

    /// Appends the log lines of the call in this step and round; `None` for `begin`.
    pub fn write(&mut self, call: Option<(u32, u32)>, said: &[LogLine]) -> Result<()> {
        for line in said {
            let (step, round) = (call.map(|(step, _)| step), call.map(|(_, round)| round));
            let level = format!("{:?}", line.level).to_lowercase();
            let line = json!({ "step": step, "round": round, "level": level, "text": line.text });
            let written = self.0.write_all(format!("{line}\n").as_bytes());
            written.map_err(|e| Error::file("write", self.0.path(), &e))?;
        }
        Ok(())
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
