//! The record of a run: append-only lines of JSON, one for the run's head, one for each call of the
//! policy, one for the rollouts that it led to, one for each step, one for the end, one where another policy
//! takes over, and one for each column of the data set that a policy is shown. Enough to replay every decision.
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
mod line;
mod times;
mod views;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use allot_allocation::{Column, Columns, Terms, shown};

pub use appended::{Appended, Kept, Mark};
pub use change::{Piece, StateChange};
pub use error::RecordError;
pub use line::{
    Call, CapsStamp, End, FORMAT, Head, Line, PolicyStamp, Rollouts, Sampled, StepEnd, Swap, hex, sha256,
    unhex,
};
pub use times::{Machine, Phase, Seconds, Time, Times};
pub use views::{Asked, Views};

/// The result of whatever reads or writes a record.
pub type Result<T> = std::result::Result<T, RecordError>;

/// Where a run's lines go.
pub struct Record {
    to: Option<Appended>,
    /// Whether it is a file, which may be removed during the run.
    file: bool,
}

impl Record {
    /// A record that keeps nothing.
    pub fn none() -> Self {
        Self { to: None, file: false }
    }

    /// Creates a record in a file that must not exist, so that no record is overwritten.
    pub fn create(path: &Path) -> Result<Self> {
        let file = Appended::create(path).map_err(|e| {
            if e.kind() == std::io::ErrorKind::AlreadyExists {
                return RecordError::There(path.to_owned());
            }
            RecordError::file("write", path, e)
        })?;
        Ok(Self { to: Some(file), file: true })
    }

    /// A record written to `writer`; `path` is what it is called where it fails.
    pub fn to(writer: Box<dyn Write + Send + Sync>, path: &Path) -> Self {
        Self { to: Some(Appended::to(writer, path)), file: false }
    }

    /// The record of a run that goes on from a checkpoint: lines after its mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self { to: Some(kept.cut()?), file: true })
    }

    /// Waits until the lines are on the disk. To be called before a checkpoint that counts on them.
    pub fn sync(&self) -> Result<()> {
        let Some(file) = &self.to else { return Ok(()) };
        file.sync().map_err(|e| RecordError::file("write", file.path(), e))
    }

    /// Bytes in whole lines so far.
    pub fn bytes(&self) -> u64 {
        self.to.as_ref().map_or(0, Appended::bytes)
    }

    /// How far it has come: what a checkpoint keeps for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.to.as_ref().map(Appended::mark).unwrap_or_default()
    }

    /// Begins it: its head, and a line for each column that the policy is shown.
    pub fn begin(&mut self, head: Box<Head>) -> Result<()> {
        let columns = head.run.columns();
        self.write(&Line::Head(head))?;
        columns.iter().try_for_each(|column| self.write(&Line::Column(Box::new(Column::clone(column)))))
    }

    /// Appends a line and hands it to the operating system, so that a crash of this program loses
    /// nothing that was written.
    ///
    /// A thread of its own would lose what it has not written yet when the process is killed, and would save
    /// about a thousandth of the quickstart's step: `benches/long.rs` measures what writing takes.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let Some(file) = &mut self.to else { return Ok(()) };
        let text = serde_json::to_vec(line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            file.write_all(&text)
        });
        text.map_err(|e| RecordError::file("write", file.path(), e))?;
        // Lines would go into a deleted file, unnoticed until the next checkpoint.
        if self.file && matches!(line, Line::Step(_) | Line::End(_)) && !file.path().exists() {
            return Err(RecordError::Gone(file.path().to_owned()));
        }
        Ok(())
    }
}

/// A record that is read line by line.
pub struct Reader {
    from: BufReader<File>,
    path: PathBuf,
    number: usize,
    cut: bool,
    /// The first line after those that belong to the head, which was read with them.
    ahead: Option<Result<Line>>,
}

/// How a line of a column begins.
const COLUMN: &[u8] = b"{\"kind\":\"column\",";

/// The longest line that is read. The rollouts of one round of the largest step take a tenth of it.
const LONGEST_LINE: u64 = 1 << 30;

impl Reader {
    /// Opens a record, given its file or the run's folder, and reads its head, and the columns that go with it.
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

    /// Reads the columns after a head into it.
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

    /// Whether the last line was cut off, as by a crash in the middle of writing it. Known once all
    /// lines were read.
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// The number of the line read last, from 1.
    pub fn line(&self) -> usize {
        self.number - usize::from(self.ahead.is_some())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The columns that a record has, those of all policies that it tells of.
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
        // A line is whole once its end is written.
        if bytes.last() != Some(&b'\n') && (bytes.len() as u64) < LONGEST_LINE {
            self.cut = true;
            return None;
        }
        // A column is read as it comes: as one of many kinds of lines it would be kept whole first, several times over.
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
