//! The table of every rollout: what was asked, what it cost, what it was worth, and whether it was trained
//! on or why not.
//!
//! A folder of parquet files, `part-00001.parquet` and on, that pyarrow, duckdb and polars read as one table.
//! A part is closed at each checkpoint, so that a run that goes on from one drops the parts after it and
//! writes the same bytes again: there is no time and no path in them. A row is written once its fate is
//! known, hence possibly in a later part than its neighbours, and no later than with the row group that it
//! fills: what is kept in memory is the buffered rollouts and at most one row group, however far the
//! checkpoints lie apart. Of the run this knows what it is told; `part.rs` knows parquet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::RolloutId;
use allot_base::{Error, Result};
use allot_record::Mark;

use super::part::{self, Part};
use super::row::Settled;
pub use super::row::{Learned, Purpose, RolloutRow};

/// Why a rollout left the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It was trained on, and is no longer of use.
    Trained,
    /// No plan held it.
    Released,
    /// It grew too old.
    Stale,
}

/// Bytes of rows, as they lie in memory, that make a row group.
const GROUP: usize = 16 << 20;

/// The table of a run, as it is written.
pub struct Table {
    folder: PathBuf,
    run: Arc<str>,
    /// Parts closed.
    parts: Vec<Mark>,
    /// Rows without a fate.
    pending: BTreeMap<RolloutId, RolloutRow>,
    /// Rows for the next row group.
    settled: Vec<Settled>,
    /// Bytes of these.
    bytes: usize,
    /// The part that they go into, once it has a row group.
    open: Option<Part>,
    /// Whether rows could not be written. They are lost, and a run has to go on from its checkpoint.
    failed: bool,
}

/// Bytes that a table holds at most, where so many rollouts wait for their fates and so many are settled between
/// two checkpoints, each with a text of so many bytes.
pub fn memory(waiting: usize, settled: usize, text: usize) -> usize {
    // What a row's own texts beside the answer take: names of problem and source.
    let row = size_of::<Settled>() + 64 + text;
    // A row group is there twice while it is written: as rows, and as columns.
    waiting.saturating_mul(row).saturating_add(2 * settled.saturating_mul(row).min(GROUP))
}

impl Table {
    /// A new table in a folder, which is made if it is missing. Fails where the folder has parts already.
    pub fn create(folder: &Path, run: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        if !part::numbers(folder)?.is_empty() {
            let what = format!("there is a table of rollouts in `{}` already", folder.display());
            return Err(Error::new(what));
        }
        Ok(Self::of(folder, run, Vec::new(), BTreeMap::new()))
    }

    /// The table of a run that goes on from a checkpoint, which tells the parts closed by then and the rows
    /// that were [`pending`](Table::pending). Later parts are deleted. Fails where an earlier one is missing, or
    /// is not what it was.
    pub fn resume(folder: &Path, run: &str, parts: Vec<Mark>, pending: Vec<RolloutRow>) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        let there = part::numbers(folder)?;
        for (number, mark) in (1..).zip(&parts) {
            let path = part::path(folder, number);
            if !there.contains(&number) {
                let what = format!("there is no `{}`, and the checkpoint counts on it", path.display());
                return Err(Error::new(what));
            }
            mark.is_of(&path)?;
        }
        // From the last one on: whatever stops this, no gap is left.
        for number in there.range(parts.len() as u32 + 1..).rev() {
            let path = part::path(folder, *number);
            std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
        }
        let pending = pending.into_iter().map(|row| (row.rollout, row)).collect();
        Ok(Self::of(folder, run, parts, pending))
    }

    fn of(folder: &Path, run: &str, parts: Vec<Mark>, pending: BTreeMap<RolloutId, RolloutRow>) -> Self {
        Self {
            folder: folder.to_owned(),
            run: run.into(),
            parts,
            pending,
            settled: Vec::new(),
            bytes: 0,
            open: None,
            failed: false,
        }
    }

    /// Takes a fresh rollout. It waits for [`settle`](Table::settle), unless its fate is known at once: one
    /// of an evaluation was `evaluated`, and one without a reward is `unscorable`. Fails where its number was
    /// given to another one that waits.
    pub fn add(&mut self, row: RolloutRow) -> Result<()> {
        // Waiting rows lie in checkpoints, and JSON has no word for a number that is not finite.
        let log_prob = row.log_prob.filter(|l| l.is_finite());
        let row = RolloutRow { log_prob, reward: row.reward.filter(|r| r.is_finite()), ..row };
        if matches!(row.purpose, Purpose::Evaluation(_)) {
            self.end(row, "evaluated")?;
        } else if row.reward.is_none() {
            self.end(row, "unscorable")?;
        } else {
            match self.pending.entry(row.rollout) {
                Entry::Vacant(place) => place.insert(row),
                Entry::Occupied(_) => {
                    return Err(Error::new(format!("rollout {} came to the table twice", row.rollout.0)));
                }
            };
        }
        Ok(())
    }

    /// Says that an update was made on a rollout. Fails where none of that number waits for its fate.
    pub fn train(&mut self, rollout: RolloutId, age: u32, advantage: f32) -> Result<()> {
        let row = self.pending.get_mut(&rollout).ok_or_else(|| unknown("trained on", rollout))?;
        row.learned.get_or_insert(Learned { age, advantage, updates: 0 }).updates += 1;
        Ok(())
    }

    /// Says what became of a rollout. Fails where none of that number waits for it.
    pub fn settle(&mut self, rollout: RolloutId, fate: Fate) -> Result<()> {
        let row = self.pending.remove(&rollout).ok_or_else(|| unknown("settled", rollout))?;
        self.end(
            row,
            match fate {
                Fate::Trained => "trained",
                Fate::Released => "released",
                Fate::Stale => "stale",
            },
        )
    }

    fn end(&mut self, row: RolloutRow, fate: &'static str) -> Result<()> {
        let texts = row.text.as_ref().map_or(0, String::len) + row.problem.len() + row.source.len();
        self.bytes += size_of::<Settled>() + texts;
        self.settled.push(Settled { run: Arc::clone(&self.run), row, fate });
        if self.bytes < GROUP { Ok(()) } else { self.close_group() }
    }

    /// Writes what is settled as a row group of the part at hand.
    fn close_group(&mut self) -> Result<()> {
        if self.failed {
            let what =
                format!("rows of the table in `{}` could not be written before", self.folder.display());
            return Err(Error::new(what).hint("go on from the run's last checkpoint"));
        }
        if self.settled.is_empty() {
            return Ok(());
        }
        // Training first, then evaluations one by one, as each of them counts on its own.
        self.settled.sort_by(|a, b| key(&a.row).cmp(&key(&b.row)));
        self.failed = true;
        let mut part = match self.open.take() {
            Some(part) => part,
            None => Part::begin(&self.folder, self.parts.len() as u32 + 1)?,
        };
        part.add(&self.settled)?;
        self.open = Some(part);
        self.failed = false;
        self.settled.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Ends the part at hand, with all that is settled; it is on the disk when this returns. Without a row there
    /// is none.
    pub fn close_part(&mut self) -> Result<()> {
        self.close_group()?;
        if let Some(part) = self.open.take() {
            self.failed = true;
            self.parts.push(part.close(&self.folder)?);
            self.failed = false;
        }
        Ok(())
    }

    /// Closes the last part, in which the rollouts still buffered are `held`, or trained on if they were. A checkpoint taken before it
    /// goes on as if it had not happened.
    pub fn finish(mut self) -> Result<()> {
        for row in std::mem::take(&mut self.pending).into_values() {
            let fate = if row.learned.is_some() { "trained" } else { "held" };
            self.end(row, fate)?;
        }
        self.close_part()
    }

    /// Parts closed so far: what a checkpoint keeps for [`Table::resume`].
    pub fn parts(&self) -> &[Mark] {
        &self.parts
    }

    /// Rollouts that wait for their fate, by number: what a checkpoint keeps for [`Table::resume`].
    pub fn pending(&self) -> impl Iterator<Item = &RolloutRow> {
        self.pending.values()
    }
}

/// The parts of a table, in their order.
pub fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(part::numbers(folder)?.into_iter().map(|number| part::path(folder, number)).collect())
}

fn unknown(what: &str, rollout: RolloutId) -> Error {
    Error::new(format!("rollout {} was {what}, and the table does not wait for it", rollout.0))
}

/// By what rows are ordered in a row group.
fn key(row: &RolloutRow) -> (Option<(u32, &str)>, RolloutId) {
    let evaluation = match &row.purpose {
        Purpose::Evaluation(set) => Some((row.step, set.as_str())),
        Purpose::Pilot | Purpose::Commit => None,
    };
    (evaluation, row.rollout)
}
