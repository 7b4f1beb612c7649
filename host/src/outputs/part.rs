//! One part of the table of rollouts: a parquet file with a row group, and the columns it has.
//!
//! It knows what a row has in which column and how a file comes to be whole or not at all; what a row means
//! is told in [`super::rollouts`], and how columns are written in [`super::columns`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use parquet::errors::Result as Parquet;

use super::columns::{Column, Columns, Sheet, told};
use super::rollouts::{Purpose, Settled};
use crate::trouble::{Result, Trouble};

/// A row, and the run that it belongs to.
struct Line<'a> {
    run: &'a str,
    settled: &'a Settled,
}

/// The columns, in their order.
fn columns<'a>() -> Columns<Line<'a>> {
    vec![
        ("run", Column::Text(|l| l.run.into())),
        ("step", Column::Count(|l| l.settled.row.step.into())),
        ("round", Column::MaybeCount(|l| l.settled.row.round.map(Into::into))),
        ("rollout", Column::Count(|l| l.settled.row.rollout.0.cast_signed())),
        ("prompt", Column::Count(|l| l.settled.row.prompt.0.into())),
        ("problem", Column::Text(|l| l.settled.row.problem.as_str().into())),
        ("source", Column::Text(|l| l.settled.row.source.as_str().into())),
        ("purpose", Column::Text(|l| purpose(l).0.into())),
        ("set", Column::MaybeText(|l| purpose(l).1.map(Into::into))),
        ("position", Column::Count(|l| l.settled.row.position.into())),
        ("version", Column::Count(|l| l.settled.row.version.into())),
        ("tokens", Column::Count(|l| l.settled.row.tokens.into())),
        ("truncated", Column::Bool(|l| l.settled.row.truncated)),
        ("log_prob", Column::MaybeDouble(|l| l.settled.row.log_prob)),
        ("reward", Column::MaybeFloat(|l| l.settled.row.reward)),
        ("correct", Column::Bool(|l| l.settled.row.correct)),
        ("age", Column::MaybeCount(|l| l.settled.age.map(Into::into))),
        ("advantage", Column::MaybeFloat(|l| l.settled.advantage)),
        ("fate", Column::Text(|l| l.settled.fate.into())),
        ("text", Column::MaybeText(|l| l.settled.row.text.as_deref().map(Into::into))),
    ]
}

/// A purpose's name, and the evaluation's set.
fn purpose<'a>(line: &Line<'a>) -> (&'static str, Option<&'a str>) {
    match &line.settled.row.purpose {
        Purpose::Pilot => ("pilot", None),
        Purpose::Commit => ("commit", None),
        Purpose::Evaluation(set) => ("evaluation", Some(set)),
    }
}

/// Where a part lies.
pub fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("part-{number:05}.parquet"))
}

/// The numbers of the parts in a folder. Other files are none of our business.
pub fn numbers(folder: &Path) -> Result<BTreeSet<u32>> {
    let trouble = |e: std::io::Error| Trouble::file("read", folder, &e);
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(trouble)? {
        let found = entry.map_err(trouble)?.path();
        let name = found.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|n| n.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok());
        numbers.extend(number.filter(|number| path(folder, *number) == found));
    }
    Ok(numbers)
}

/// Writes a part under a name that no reader takes for one, and renames it once it is on the disk.
pub fn write(folder: &Path, number: u32, run: &str, rows: &[Settled]) -> Result<()> {
    // A dot in front: pyarrow reads every other file of a folder.
    let (passing, path) = (folder.join(format!(".part-{number:05}")), path(folder, number));
    let written = File::create(&passing)
        .and_then(|file| {
            let mut buffered = BufWriter::with_capacity(1 << 20, file);
            encode(&mut buffered, run, rows).map_err(told)?;
            buffered.into_inner()?.sync_all()
        })
        .and_then(|()| std::fs::rename(&passing, &path))
        .and_then(|()| lasting(folder));
    written.map_err(|e| {
        // The reason that it failed matters more than a second failure.
        let _ = std::fs::remove_file(&passing);
        Trouble::file("write", &path, &e)
    })
}

/// Makes a rename last: on Unix it is the folder's content, and lasts once the folder is on the disk.
fn lasting(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The parquet file of some rows.
fn encode(to: impl Write + Send, run: &str, rows: &[Settled]) -> Parquet<()> {
    let lines: Vec<Line<'_>> = rows.iter().map(|settled| Line { run, settled }).collect();
    let mut sheet = Sheet::new(to, columns(), "rollout", &["log_prob", "text"])?;
    sheet.write(&lines)?;
    sheet.finish()
}
