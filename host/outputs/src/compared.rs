//! One parquet table of all rollouts of a comparison, made from the runs' records alone. Records do not
//! have the texts and log-probabilities of a run's own table.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use allot_base::{Error, Result};
use allot_record::Head;
use allot_report::history::Rollout;

use super::columns::{Column, Columns, Sheet, told};

/// A rollout, and the run that it belongs to.
struct Line {
    run: Rc<Named>,
    rollout: Rollout,
}

/// Columns that identify a run.
#[derive(Debug, Default)]
struct Named {
    name: String,
    arm: String,
    policy: String,
    seed: i64,
}

/// Rollouts per row group.
const GROUP: usize = 1 << 18;

/// The table while it is written.
pub struct Compared {
    sheet: Sheet<Line, BufWriter<File>>,
    path: PathBuf,
    run: Rc<Named>,
    lines: Vec<Line>,
    /// The first error, which `finish` returns: the callers of `add` do not handle I/O errors.
    failed: Option<Error>,
}

fn columns() -> Columns<Line> {
    vec![
        ("run", Column::Text(|l| l.run.name.as_str().into())),
        ("arm", Column::Text(|l| l.run.arm.as_str().into())),
        ("policy", Column::Text(|l| l.run.policy.as_str().into())),
        ("seed", Column::Count(|l| l.run.seed)),
        ("step", Column::Count(|l| l.rollout.step.into())),
        ("round", Column::Count(|l| l.rollout.round.into())),
        ("rollout", Column::Count(|l| l.rollout.number.cast_signed())),
        ("prompt", Column::Count(|l| l.rollout.prompt.0.into())),
        ("purpose", Column::Text(|l| if l.rollout.pilot { "pilot" } else { "commit" }.into())),
        ("version", Column::Count(|l| l.rollout.version.into())),
        ("tokens", Column::MaybeCount(|l| l.rollout.tokens.map(Into::into))),
        ("truncated", Column::Bool(|l| l.rollout.truncated)),
        ("reward", Column::MaybeFloat(|l| l.rollout.reward)),
        ("correct", Column::Bool(|l| l.rollout.correct)),
        ("fate", Column::Text(|l| l.rollout.fate.into())),
        ("settled", Column::Count(|l| l.rollout.settled.into())),
        ("age", Column::MaybeCount(|l| l.rollout.age.map(Into::into))),
        ("advantage", Column::MaybeFloat(|l| l.rollout.advantage)),
    ]
}

impl Compared {
    /// Creates a table in this file, replacing any existing file.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::file("write", path, &e))?;
        let sheet = Sheet::new(BufWriter::with_capacity(1 << 20, file), columns(), "rollout", &[]);
        let sheet = sheet.map_err(|e| Error::file("write", path, &told(e)))?;
        Ok(Self { sheet, path: path.to_owned(), run: Rc::default(), lines: Vec::new(), failed: None })
    }

    /// Sets the run of the rollouts that are added next.
    pub fn run(&mut self, name: &str, head: &Head) {
        let policy = head.policy.name.clone();
        let arm = head.name.clone().unwrap_or_else(|| policy.clone());
        self.run = Rc::new(Named { name: name.to_owned(), arm, policy, seed: head.seed.cast_signed() });
    }

    /// Adds a rollout.
    pub fn add(&mut self, rollout: Rollout) {
        self.lines.push(Line { run: Rc::clone(&self.run), rollout });
        if self.lines.len() >= GROUP {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() && !self.lines.is_empty() {
            let written = self.sheet.write(&self.lines);
            self.failed = written.err().map(|e| Error::file("write", &self.path, &told(e)));
        }
        self.lines.clear();
    }

    /// Writes the end of the table. Returns the first error of all writes.
    pub fn finish(mut self) -> Result<()> {
        self.flush();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let ended = self.sheet.finish().and_then(|mut file| Ok(file.flush()?));
        ended.map_err(|e| Error::file("write", &self.path, &told(e)))
    }
}
