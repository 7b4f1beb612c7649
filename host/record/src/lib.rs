//! The record of a run: append-only lines of JSON. There is one line for the head, each call of the policy,
//! the rollouts of each plan, each step, each change of policy, each column of the data set that a policy
//! is shown, and the end. These lines suffice to replay every decision.
//!
//! `docs/reference/record.md` describes the lines for readers in other languages.
//!
//! ```
//! use allot_record::{hex, unhex};
//!
//! // A policy's state is written as hexadecimal digits.
//! assert_eq!(hex(&[0, 255]), "00ff");
//! assert_eq!(unhex("00ff"), Some(vec![0, 255]));
//! ```

mod appended;
mod change;
mod error;
mod evaluations;
mod line;
mod times;
mod views;
mod warned;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use allot_allocation::{Column, Columns, Terms, shown};

pub use appended::{Appended, Kept, Mark};
pub use change::{Piece, StateChange};
pub use error::RecordError;
pub use evaluations::Evaluation;
pub use line::{
    Call, CapsStamp, End, FORMAT, Head, Line, PolicyStamp, Rollouts, Sampled, StepEnd, Swap, hex, sha256,
    unhex,
};
pub use times::{Machine, Phase, Seconds, Time, Times};
pub use views::{Asked, Views};
pub use warned::warned;

/// The result of reading or writing a record.
pub type Result<T> = std::result::Result<T, RecordError>;

/// A record that is being written.
pub struct Record {
    to: Option<Appended>,
    /// Whether the record is a file, which may be removed during the run.
    file: bool,
}

impl Record {
    /// Returns a record that discards all lines.
    pub fn none() -> Self {
        Self { to: None, file: false }
    }

    /// Creates a record in a new file. Fails if the file exists, so that no record is overwritten.
    pub fn create(path: &Path) -> Result<Self> {
        let file = Appended::create(path).map_err(|e| {
            if e.kind() == std::io::ErrorKind::AlreadyExists {
                return RecordError::There(path.to_owned());
            }
            RecordError::file("write", path, e)
        })?;
        Ok(Self { to: Some(file), file: true })
    }

    /// Returns a record that writes to `writer`. `path` is its name in error messages.
    pub fn to(writer: Box<dyn Write + Send + Sync>, path: &Path) -> Self {
        Self { to: Some(Appended::to(writer, path)), file: false }
    }

    /// Returns the record of a run resumed from a checkpoint. Removes the lines after the mark.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self { to: Some(kept.cut()?), file: true })
    }

    /// Waits until the lines are on the disk. Call it before writing a checkpoint that relies on them.
    pub fn sync(&self) -> Result<()> {
        let Some(file) = &self.to else { return Ok(()) };
        file.sync().map_err(|e| RecordError::file("write", file.path(), e))
    }

    /// Returns the number of bytes in complete lines so far.
    pub fn bytes(&self) -> u64 {
        self.to.as_ref().map_or(0, Appended::bytes)
    }

    /// Returns the current length and hash, which a checkpoint stores for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.to.as_ref().map(Appended::mark).unwrap_or_default()
    }

    /// Writes the head and a line for each column that the policy is shown.
    pub fn begin(&mut self, head: Box<Head>) -> Result<()> {
        let columns = head.run.columns();
        self.write(&Line::Head(head))?;
        columns.iter().try_for_each(|column| self.write(&Line::Column(Box::new(Column::clone(column)))))
    }

    /// Appends a line and passes it to the operating system, so that a crash of this program loses no
    /// written line.
    ///
    /// A separate writer thread would lose pending lines when the process is killed. It would save only
    /// about 0.1 % of a quickstart step: `benches/long.rs` measures the time for writing.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let Some(file) = &mut self.to else { return Ok(()) };
        let text = serde_json::to_vec(line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            file.write_all(&text)
        });
        text.map_err(|e| RecordError::file("write", file.path(), e))?;
        // Lines written to a deleted file would be lost, unnoticed until the next checkpoint.
        if self.file && matches!(line, Line::Step(_) | Line::End(_)) && !file.path().exists() {
            return Err(RecordError::Gone(file.path().to_owned()));
        }
        Ok(())
    }
}

/// A reader of a record, line by line.
pub struct Reader {
    from: BufReader<File>,
    path: PathBuf,
    number: usize,
    cut: bool,
    /// The first line after the head's columns, which is read along with them.
    ahead: Option<Result<Line>>,
}

/// Beginning of a column's line.
const COLUMN: &[u8] = b"{\"kind\":\"column\",";

/// Maximum length of a line, in bytes. The rollouts of one round of the largest step take a tenth of it.
const LONGEST_LINE: u64 = 1 << 30;

impl Reader {
    /// Opens a record, given its file or the run's folder. Reads its head and the columns after it.
    pub fn open(path: &Path) -> Result<(Self, Head)> {
        let file = if path.is_dir() { path.join("record.jsonl") } else { path.to_owned() };
        let opened = File::open(&file).map_err(|e| RecordError::file("read", &file, e))?;
        let from = BufReader::with_capacity(1 << 16, opened);
        let mut reader = Self { from, path: file, number: 0, cut: false, ahead: None };
        let path = reader.path.clone();
        match reader.next() {
            Some(Ok(Line::Head(head))) if head.format == FORMAT => reader.columns(*head),
            Some(Ok(Line::Head(head))) => Err(RecordError::Format { path, format: head.format }),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(RecordError::NoHead(path)),
            None => Err(RecordError::Empty(path)),
        }
    }

    /// Reads the columns after a head and adds them to it.
    fn columns(mut self, mut head: Head) -> Result<(Self, Head)> {
        let (prompts, mut columns) = (head.run.prompts, Columns::default());
        if head.run.terms.is_some() {
            loop {
                match self.next() {
                    Some(Ok(Line::Column(column))) if column.fits(prompts) => columns.add(*column),
                    Some(Ok(Line::Column(_))) => return Err(RecordError::Inconsistent { step: 0, round: 0 }),
                    next => {
                        self.ahead = next;
                        break;
                    }
                }
            }
        }
        head.run.terms = head.run.terms.map(|terms| Terms { columns, ..terms });
        Ok((self, head))
    }

    /// Returns whether the last line is incomplete, as after a crash while writing it. Valid once all lines
    /// are read.
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// Returns the number of the last line read, counted from 1.
    pub fn line(&self) -> usize {
        self.number - usize::from(self.ahead.is_some())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns all columns in a record, for all policies of the run.
pub fn columns(path: &Path) -> Result<Columns> {
    let (reader, head) = Reader::open(path)?;
    let mut columns = head.run.columns();
    for line in reader {
        if let Line::Column(column) = line? {
            columns.add(*column);
        }
    }
    Ok(columns)
}

impl Iterator for Reader {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        if let Some(line) = self.ahead.take() {
            return Some(line);
        }
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        match read {
            Ok(0) => return None,
            Ok(_) => self.number += 1,
            Err(e) => return Some(Err(RecordError::file("read", &self.path, e))),
        }
        // A line is complete once its line break is written.
        if bytes.last() != Some(&b'\n') && (bytes.len() as u64) < LONGEST_LINE {
            self.cut = true;
            return None;
        }
        // Parse columns directly: for a tagged enum, serde would first buffer the value several times over.
        let line = if bytes.starts_with(COLUMN) {
            serde_json::from_slice(&bytes).map(|column| Line::Column(Box::new(column)))
        } else {
            serde_json::from_slice(&bytes)
        };
        Some(line.map_err(|error| RecordError::Line {
            path: self.path.clone(),
            number: self.number,
            reason: shown::line(&error.to_string(), shown::LINE),
        }))
    }
}
