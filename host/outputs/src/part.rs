//! One part of the table of rollouts: a parquet file that is written one row group at a time.
//!
//! This module defines the columns, and makes sure that a part appears complete or not at all.
//! [`super::rollouts`] describes the rows; [`super::columns`] writes the columns.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_record::{Appended, Mark};
use serde_json::{Map, Value};

use super::columns::{Column, Columns, Sheet, told};
use super::row::{Purpose, Settled};

/// The columns, in their order.
fn columns() -> Columns<Settled> {
    vec![
        ("run", Column::Text(|l| (*l.run).into())),
        ("step", Column::Count(|l| l.row.step.into())),
        ("round", Column::MaybeCount(|l| l.row.round.map(Into::into))),
        ("rollout", Column::Count(|l| l.row.rollout.0.cast_signed())),
        ("prompt", Column::Count(|l| l.row.prompt.0.into())),
        ("problem", Column::Text(|l| l.row.problem.as_str().into())),
        ("source", Column::Text(|l| l.row.source.as_str().into())),
        ("purpose", Column::Text(|l| purpose(l).0.into())),
        ("set", Column::MaybeText(|l| purpose(l).1.map(Into::into))),
        ("position", Column::Count(|l| l.row.position.into())),
        ("version", Column::Count(|l| l.row.version.into())),
        ("tokens", Column::Count(|l| l.row.tokens.into())),
        ("truncated", Column::Bool(|l| l.row.truncated)),
        ("log_prob", Column::MaybeDouble(|l| l.row.log_prob)),
        ("reward", Column::MaybeFloat(|l| l.row.reward)),
        ("rewards", Column::MaybeText(|l| rewards(&l.row.rewards).map(|text| text.as_str().into()))),
        ("correct", Column::Bool(|l| l.row.correct)),
        ("age", Column::MaybeCount(|l| l.row.learned.map(|learned| learned.age.into()))),
        ("advantage", Column::MaybeFloat(|l| l.row.learned.map(|learned| learned.advantage))),
        ("updates", Column::Count(|l| l.row.learned.map_or(0, |learned| learned.updates.into()))),
        ("fate", Column::Text(|l| l.fate.into())),
        ("turns", Column::MaybeCount(|l| l.row.played.as_ref().map(|played| played.turns.into()))),
        ("read_tokens", Column::MaybeCount(|l| l.row.played.as_ref().map(|played| played.read.into()))),
        ("training_rows", Column::MaybeCount(|l| l.row.played.as_ref().map(|played| played.rows.into()))),
        (
            "stopped",
            Column::MaybeText(|l| l.row.played.as_ref().map(|played| played.stopped.as_str().into())),
        ),
        ("text", Column::MaybeText(|l| l.row.text.as_deref().map(Into::into))),
    ]
}

/// Returns the name of a purpose and, for an evaluation, its set.
fn purpose(line: &Settled) -> (&'static str, Option<&str>) {
    match &line.row.purpose {
        Purpose::Pilot => ("pilot", None),
        Purpose::Commit => ("commit", None),
        Purpose::Evaluation(set) => ("evaluation", Some(set)),
    }
}

/// Returns the parts of a reward as a JSON object.
fn rewards(parts: &[(String, f32)]) -> Option<String> {
    let object = || parts.iter().map(|(name, x)| (name.clone(), Value::from(*x))).collect::<Map<_, _>>();
    (!parts.is_empty()).then(|| Value::Object(object()).to_string())
}

/// Returns the path of a part.
pub fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("part-{number:05}.parquet"))
}

/// Returns the numbers of the parts in a folder. Other files are ignored.
pub fn numbers(folder: &Path) -> Result<BTreeSet<u32>> {
    let unread = |e: std::io::Error| Error::file("read", folder, &e);
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        let found = entry.map_err(unread)?.path();
        let name = found.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|n| n.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok());
        numbers.extend(number.filter(|number| path(folder, *number) == found));
    }
    Ok(numbers)
}

/// A part that is being written, under a name that readers skip.
pub struct Part {
    sheet: Sheet<Settled, BufWriter<Appended>>,
    passing: PathBuf,
    path: PathBuf,
}

impl Part {
    /// Begins a part.
    pub fn begin(folder: &Path, number: u32) -> Result<Self> {
        // The name begins with a dot, because pyarrow reads every other file of a folder.
        let (passing, path) = (folder.join(format!(".part-{number:05}")), path(folder, number));
        let sheet = File::create(&passing).and_then(|file| {
            let buffered = BufWriter::with_capacity(1 << 20, Appended::to(Box::new(file), &passing));
            Sheet::new(buffered, columns(), "rollout", &["log_prob", "text"]).map_err(told)
        });
        match sheet {
            Ok(sheet) => Ok(Self { sheet, passing, path }),
            Err(e) => Err(failed(&passing, &path, &e)),
        }
    }

    /// Adds a row group.
    pub fn add(&mut self, rows: &[Settled]) -> Result<()> {
        self.sheet.write(rows).map_err(|e| failed(&self.passing, &self.path, &told(e)))
    }

    /// Renames the part to its final name, once it is on disk.
    pub fn close(self, folder: &Path) -> Result<Mark> {
        let Self { sheet, passing, path } = self;
        let ended = sheet.finish().map_err(told).and_then(|buffered| {
            let file = buffered.into_inner()?;
            file.sync()?;
            std::fs::rename(&passing, &path)?;
            lasting(folder)?;
            Ok(file.mark())
        });
        ended.map_err(|e| failed(&passing, &path, &e))
    }
}

/// Removes the incomplete file and returns the error. An error of the removal is ignored.
fn failed(passing: &Path, path: &Path, error: &std::io::Error) -> Error {
    let _ = std::fs::remove_file(passing);
    Error::file("write", path, error)
}

/// Makes a rename durable: on Unix, by syncing the folder.
fn lasting(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
