//! The table of all rollouts: prompt, length, reward, and whether each was trained on or why not.
//!
//! A folder of parquet files, `part-00001.parquet` and on, that pyarrow, duckdb and polars read as one
//! table. Each checkpoint closes a part. A resumed run deletes later parts and writes the same bytes again,
//! because they contain no time and no path. A row is written once its fate is known, so it may be in a
//! later part than its neighbours. It is written at the latest with the row group that it fills: memory
//! holds the buffered rollouts and at most one row group, however far apart the checkpoints are. `part.rs`
//! handles parquet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::RolloutId;
use allot_base::{Error, Result};
use allot_record::Mark;

use super::part::{self, Part};
use super::row::Settled;
pub use super::row::{Learned, Played, Purpose, RolloutRow};

/// Why a rollout left the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It was trained on and is no longer needed.
    Trained,
    /// It was discarded, because no plan held it.
    Released,
    /// It was discarded, because it was stale.
    Stale,
}

/// Size of a row group, in bytes of its rows in memory.
const GROUP: usize = 16 << 20;

/// The table of a run while it is written.
pub struct Table {
    folder: PathBuf,
    run: Arc<str>,
    /// Closed parts.
    parts: Vec<Mark>,
    /// Rows whose fate is not known yet.
    pending: BTreeMap<RolloutId, RolloutRow>,
    /// Rows for the next row group.
    settled: Vec<Settled>,
    /// Size of `settled`, in bytes.
    bytes: usize,
    /// The part that is being written, once it has a row group.
    open: Option<Part>,
    /// Whether writing rows has failed. They are lost, and the run must resume from its checkpoint.
    failed: bool,
}

/// Returns the maximum size of a table in memory, in bytes: for `waiting` rollouts without a fate and
/// `settled` rollouts between two checkpoints, each with `text` bytes of text.
pub fn memory(waiting: usize, settled: usize, text: usize) -> usize {
    // The 64 bytes are for a row's other texts: the names of problem and source.
    let row = size_of::<Settled>() + 64 + text;
    // While a row group is written it is in memory twice: as rows and as columns.
    waiting.saturating_mul(row).saturating_add(2 * settled.saturating_mul(row).min(GROUP))
}

impl Table {
    /// Creates a table in a folder, which is made if it is missing. Fails if the folder already has parts.
    pub fn create(folder: &Path, run: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        if !part::numbers(folder)?.is_empty() {
            let what = format!("there is a table of rollouts in `{}` already", folder.display());
            return Err(Error::new(what));
        }
        Ok(Self::of(folder, run, Vec::new(), BTreeMap::new()))
    }

    /// Opens the table of a resumed run, with the parts closed by its checkpoint and the rows that were
    /// [`pending`](Table::pending). Later parts are deleted. Fails if an earlier part is missing or has
    /// changed.
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
        // The last part is deleted first, so that an interruption leaves no gap.
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

    /// Adds a fresh rollout, which waits for [`settle`](Table::settle). A rollout of an evaluation is
    /// `evaluated` at once, and one without a reward is `unscorable`. Fails if another rollout with its
    /// number is waiting.
    pub fn add(&mut self, row: RolloutRow) -> Result<()> {
        // Checkpoints contain the waiting rows, and JSON cannot express a number that is not finite.
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

    /// Records an update on a rollout. Fails if no rollout with this number is waiting.
    pub fn train(&mut self, rollout: RolloutId, age: u32, advantage: f32) -> Result<()> {
        let row = self.pending.get_mut(&rollout).ok_or_else(|| unknown("trained on", rollout))?;
        row.learned.get_or_insert(Learned { age, advantage, updates: 0 }).updates += 1;
        Ok(())
    }

    /// Sets the fate of a rollout. Fails if no rollout with this number is waiting.
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

    /// Writes the settled rows as a row group of the open part.
    fn close_group(&mut self) -> Result<()> {
        if self.failed {
            let what =
                format!("rows of the table in `{}` could not be written before", self.folder.display());
            return Err(Error::new(what).hint("go on from the run's last checkpoint"));
        }
        if self.settled.is_empty() {
            return Ok(());
        }
        // Training rows come first. Evaluations follow one by one, because each has its own numbers.
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

    /// Closes the open part with all settled rows and syncs it to disk. Without rows there is no part.
    pub fn close_part(&mut self) -> Result<()> {
        self.close_group()?;
        if let Some(part) = self.open.take() {
            self.failed = true;
            self.parts.push(part.close(&self.folder)?);
            self.failed = false;
        }
        Ok(())
    }

    /// Closes the last part. Rollouts that are still buffered are `trained` if they were trained on, else
    /// `held`. A run resumed from an earlier checkpoint is not affected.
    pub fn finish(mut self) -> Result<()> {
        for row in std::mem::take(&mut self.pending).into_values() {
            let fate = if row.learned.is_some() { "trained" } else { "held" };
            self.end(row, fate)?;
        }
        self.close_part()
    }

    /// Parts closed so far; a checkpoint keeps them for [`Table::resume`].
    pub fn parts(&self) -> &[Mark] {
        &self.parts
    }

    /// Rollouts that wait for their fate, by number; a checkpoint keeps them for [`Table::resume`].
    pub fn pending(&self) -> impl Iterator<Item = &RolloutRow> {
        self.pending.values()
    }
}

/// Returns the paths of a table's parts, in order.
pub fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(part::numbers(folder)?.into_iter().map(|number| part::path(folder, number)).collect())
}

fn unknown(what: &str, rollout: RolloutId) -> Error {
    Error::new(format!("rollout {} was {what}, and the table does not wait for it", rollout.0))
}

/// Returns the sort key of a row in its row group.
fn key(row: &RolloutRow) -> (Option<(u32, &str)>, RolloutId) {
    let evaluation = match &row.purpose {
        Purpose::Evaluation(set) => Some((row.step, set.as_str())),
        Purpose::Pilot | Purpose::Commit => None,
    };
    (evaluation, row.rollout)
}
