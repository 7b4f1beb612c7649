//! `log.jsonl`: what the policy said, a line of JSON for each of its lines, with the step and the round in which
//! it said it. JSON holds whatever a guest says; no terminal obeys it.

use std::io::Write as _;
use std::path::Path;

use allot_allocation::log::LogLine;
use allot_base::{Error, Result};
use allot_record::{Appended, Kept, Mark};
use serde_json::json;

/// The file of a policy's words.
#[derive(Debug)]
pub struct Log(Appended);

impl Log {
    /// A new file. Fails where there is one already.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| Error::file("write", path, &e))
    }

    /// The file of a run that goes on from a checkpoint: lines after its mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self(kept.cut()?))
    }

    /// Appends what was said in a call, of this step and round; in `begin` there is neither.
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

    /// How far it has come: what a checkpoint keeps for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the lines are on the disk. To be called before a checkpoint that counts on them.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| Error::file("write", self.0.path(), &e))
    }
}
