//! The table of every rollout: what was asked, what it cost, what it was worth, and whether it was trained
//! on or why not.
//!
//! A folder of parquet files, `part-00001.parquet` and on, that pyarrow, duckdb and polars read as one table.
//! A part is closed at each checkpoint, so that a run that goes on from one drops the parts after it and
//! writes the same bytes again: there is no time and no path in them. A row is written once its fate is
//! known, hence possibly in a later part than its neighbours. Of the run this knows what it is told;
//! `part.rs` knows parquet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use allot_allocation::{PromptId, RolloutId};
use serde::{Deserialize, Serialize};

use super::part;
use crate::trouble::{Result, Trouble};

/// A rollout as it was sampled and judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The step: of an evaluation, the steps done before it.
    pub step: u32,
    /// The round; none in an evaluation.
    pub round: Option<u32>,
    /// Its number in the run, as the shelf counts. The rollouts of an evaluation have numbers of their own,
    /// from 0 in each set, and the shelf does not count them.
    pub rollout: RolloutId,
    /// The prompt's position in its data set.
    pub prompt: PromptId,
    /// The prompt's problem, by its content.
    pub problem: String,
    /// Where the problem comes from.
    pub source: String,
    /// What it was sampled for.
    pub purpose: Purpose,
    /// Its place among the prompt's rollouts at those weights.
    pub position: u32,
    /// The weights: model updates made before it was sampled.
    pub version: u32,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Log-probability at sampling time, in nats, summed over its tokens.
    pub log_prob: Option<f64>,
    /// The reward; none where it could not be scored.
    pub reward: Option<f32>,
    /// Whether the answer was right.
    pub correct: bool,
    /// The answer, where it is kept.
    pub text: Option<String>,
}

/// What a rollout was sampled for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A look at a prompt that came from the pool.
    Pilot,
    /// More of a prompt that was on hand.
    Commit,
    /// A score on the held-out set of this name.
    Evaluation(String),
}

/// What became of a rollout that was on hand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It was trained on.
    Trained {
        /// Model updates made since it was sampled.
        age: u32,
        /// How much better it was than its baseline, scaled.
        advantage: f32,
    },
    /// No plan held it.
    Released,
    /// It grew too old.
    Stale,
}

/// A row whose fate is known.
#[derive(Debug)]
pub(super) struct Settled {
    pub row: Row,
    /// The fate's name in the table.
    pub fate: &'static str,
    /// Of a rollout trained on.
    pub age: Option<u32>,
    /// Of a rollout trained on.
    pub advantage: Option<f32>,
}

/// The table of a run, as it is written. What it keeps in memory is the rollouts on hand and those settled
/// since the last part.
#[derive(Debug)]
pub struct Table {
    folder: PathBuf,
    run: String,
    /// Parts closed.
    parts: u32,
    /// Rows without a fate.
    pending: BTreeMap<RolloutId, Row>,
    /// Rows for the next part.
    settled: Vec<Settled>,
}

impl Table {
    /// A new table in a folder, which is made if it is missing. Fails where the folder has parts already.
    pub fn create(folder: &Path, run: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e))?;
        if !part::numbers(folder)?.is_empty() {
            let what = format!("there is a table of rollouts in `{}` already", folder.display());
            return Err(Trouble::new(what));
        }
        Ok(Self::of(folder, run, 0, BTreeMap::new()))
    }

    /// The table of a run that goes on from a checkpoint, which tells the parts closed by then and the rows
    /// that were [`pending`](Table::pending). Later parts are deleted. Fails where an earlier one is missing.
    pub fn resume(folder: &Path, run: &str, parts: u32, pending: Vec<Row>) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e))?;
        let there = part::numbers(folder)?;
        if let Some(missing) = (1..=parts).find(|number| !there.contains(number)) {
            let path = part::path(folder, missing);
            let what = format!("there is no `{}`, and the checkpoint counts on it", path.display());
            return Err(Trouble::new(what));
        }
        // From the last one on: whatever stops this, no gap is left.
        for number in there.range(parts.saturating_add(1)..).rev() {
            let path = part::path(folder, *number);
            std::fs::remove_file(&path).map_err(|e| Trouble::file("remove", &path, &e))?;
        }
        let pending = pending.into_iter().map(|row| (row.rollout, row)).collect();
        Ok(Self::of(folder, run, parts, pending))
    }

    fn of(folder: &Path, run: &str, parts: u32, pending: BTreeMap<RolloutId, Row>) -> Self {
        Self { folder: folder.to_owned(), run: run.to_owned(), parts, pending, settled: Vec::new() }
    }

    /// Takes a fresh rollout. It waits for [`settle`](Table::settle), unless its fate is known at once: one
    /// of an evaluation was `evaluated`, and one without a reward is `unscorable`. Fails where its number was
    /// given to another one that waits.
    pub fn add(&mut self, row: Row) -> Result<()> {
        // Waiting rows lie in checkpoints, and JSON has no word for a number that is not finite.
        let log_prob = row.log_prob.filter(|l| l.is_finite());
        let row = Row { log_prob, reward: row.reward.filter(|r| r.is_finite()), ..row };
        if matches!(row.purpose, Purpose::Evaluation(_)) {
            self.end(row, "evaluated");
        } else if row.reward.is_none() {
            self.end(row, "unscorable");
        } else {
            match self.pending.entry(row.rollout) {
                Entry::Vacant(place) => place.insert(row),
                Entry::Occupied(_) => {
                    return Err(Trouble::new(format!("rollout {} came to the table twice", row.rollout.0)));
                }
            };
        }
        Ok(())
    }

    /// Says what became of a rollout. Fails where none of that number waits for it.
    pub fn settle(&mut self, rollout: RolloutId, fate: Fate) -> Result<()> {
        let Some(row) = self.pending.remove(&rollout) else {
            return Err(Trouble::new(format!(
                "rollout {} was settled, and the table does not wait for it",
                rollout.0
            )));
        };
        match fate {
            Fate::Trained { age, advantage } => {
                let (age, advantage) = (Some(age), Some(advantage));
                self.settled.push(Settled { row, fate: "trained", age, advantage });
            }
            Fate::Released => self.end(row, "released"),
            Fate::Stale => self.end(row, "stale"),
        }
        Ok(())
    }

    fn end(&mut self, row: Row, fate: &'static str) {
        self.settled.push(Settled { row, fate, age: None, advantage: None });
    }

    /// Writes what is settled as the next part, on the disk when this returns. Without a row there is none.
    /// Where it fails the rows are kept, and it may be called again.
    pub fn close_part(&mut self) -> Result<()> {
        if self.settled.is_empty() {
            return Ok(());
        }
        // Training first, then evaluations one by one, as each of them counts on its own.
        self.settled.sort_by(|a, b| key(&a.row).cmp(&key(&b.row)));
        let number = self.parts + 1;
        part::write(&self.folder, number, &self.run, &self.settled)?;
        self.parts = number;
        self.settled.clear();
        Ok(())
    }

    /// Closes the last part, in which the rollouts still on hand are `held`. A checkpoint taken before it
    /// goes on as if it had not happened.
    pub fn finish(mut self) -> Result<()> {
        for row in std::mem::take(&mut self.pending).into_values() {
            self.end(row, "held");
        }
        self.close_part()
    }

    /// Parts closed so far: what a checkpoint keeps for [`Table::resume`].
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Rollouts that wait for their fate, by number: what a checkpoint keeps for [`Table::resume`].
    pub fn pending(&self) -> impl Iterator<Item = &Row> {
        self.pending.values()
    }
}

/// By what rows are ordered in a part.
fn key(row: &Row) -> (Option<(u32, &str)>, RolloutId) {
    let evaluation = match &row.purpose {
        Purpose::Evaluation(set) => Some((row.step, set.as_str())),
        Purpose::Pilot | Purpose::Commit => None,
    };
    (evaluation, row.rollout)
}
