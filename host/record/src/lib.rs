//! The record of a run: append-only lines of JSON, one for the run's head, one for each call of the
//! policy, one for the rollouts that it led to, one for each step, one for the end, and one where another
//! policy takes over. Enough to ask everything again.
//!
//! `docs/record.md` describes the lines for readers in other languages.

mod error;
mod line;
mod times;
mod views;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use error::RecordError;
pub use line::{
    Call, CapsStamp, End, FORMAT, Head, Line, PolicyStamp, Rollouts, Sampled, StepEnd, Swap, hex, unhex,
};
pub use times::{Machine, Phase, Seconds, Time, Times};
pub use views::{Asked, Views};

/// The result of whatever reads or writes a record.
pub type Result<T> = std::result::Result<T, RecordError>;

/// Where a run's lines go.
pub struct Record {
    to: Option<(BufWriter<Box<dyn Write + Send + Sync>>, PathBuf)>,
    bytes: u64,
}

impl Record {
    /// A record that keeps nothing.
    pub fn none() -> Self {
        Self { to: None, bytes: 0 }
    }

    /// A new record in a file that is not there yet: nobody's record is written over.
    pub fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| {
            if e.kind() == std::io::ErrorKind::AlreadyExists {
                return RecordError::There(path.to_owned());
            }
            RecordError::file("write", path, e)
        })?;
        Ok(Self::to(Box::new(file), path))
    }

    /// A record written to `writer`; `path` is what it is called where it fails.
    pub fn to(writer: Box<dyn Write + Send + Sync>, path: &Path) -> Self {
        Self { to: Some((BufWriter::with_capacity(1 << 16, writer), path.to_owned())), bytes: 0 }
    }

    /// The record of a run that goes on from a checkpoint: lines after its first `bytes` bytes are cut
    /// off. Fails where it is shorter than that.
    pub fn resume(path: &Path, bytes: u64) -> Result<Self> {
        let file = reopened(path, bytes)?;
        Ok(Self { bytes, ..Self::to(Box::new(file), path) })
    }

    /// Waits until the lines are on the disk. To be called before a checkpoint that counts on them.
    pub fn sync(&self) -> Result<()> {
        let Some((_, path)) = &self.to else { return Ok(()) };
        let synced = OpenOptions::new().write(true).open(path).and_then(|file| file.sync_data());
        synced.map_err(|e| RecordError::file("write", path, e))
    }

    /// Bytes in whole lines so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a line and hands it to the operating system, so that a crash of this program loses
    /// nothing that was written.
    ///
    /// A thread of its own would lose what it has not written yet when the process is killed, and would save
    /// about a thousandth of the quickstart's step: `benches/long.rs` measures what writing takes.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let Some((writer, path)) = &mut self.to else { return Ok(()) };
        let mut text = serde_json::to_vec(line).map_err(|e| RecordError::file("write", path, e.into()))?;
        text.push(b'\n');
        let mut write = || {
            writer.write_all(&text)?;
            writer.flush()
        };
        write().map_err(|e| RecordError::file("write", path, e))?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// A record that is read line by line.
pub struct Reader {
    from: BufReader<File>,
    path: PathBuf,
    number: usize,
    cut: bool,
}

/// The longest line that is read. The rollouts of one round of the largest step take a tenth of it.
const LONGEST_LINE: u64 = 1 << 30;

impl Reader {
    /// Opens a record, given its file or the run's folder, and reads its head.
    pub fn open(path: &Path) -> Result<(Self, Head)> {
        let file = if path.is_dir() { path.join("record.jsonl") } else { path.to_owned() };
        let opened = File::open(&file).map_err(|e| RecordError::file("read", &file, e))?;
        let from = BufReader::with_capacity(1 << 16, opened);
        let mut reader = Self { from, path: file, number: 0, cut: false };
        let path = reader.path.clone();
        match reader.next() {
            Some(Ok(Line::Head(head))) if head.format == FORMAT => Ok((reader, *head)),
            Some(Ok(Line::Head(head))) => Err(RecordError::Format { path, format: head.format }),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(RecordError::NoHead(path)),
            None => Err(RecordError::Empty(path)),
        }
    }

    /// Whether the last line was cut off, as by a crash in the middle of writing it. Known once all
    /// lines were read.
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// The number of the line read last, from 1.
    pub fn line(&self) -> usize {
        self.number
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Iterator for Reader {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
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
        Some(serde_json::from_slice(&bytes).map_err(|error| RecordError::Line {
            path: self.path.clone(),
            number: self.number,
            reason: error.to_string(),
        }))
    }
}

/// A file as it was at a checkpoint: what was written after its first `bytes` bytes is cut off. Fails where
/// it is shorter than that.
pub fn reopened(path: &Path, bytes: u64) -> Result<File> {
    let failed = |e| RecordError::file("write", path, e);
    let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found < bytes {
        // Lengthening it would fill the gap with zeros, which no reader of any of a run's files takes.
        return Err(RecordError::Short { path: path.to_owned(), found, counted: bytes });
    }
    file.set_len(bytes).map_err(failed)?;
    file.seek(SeekFrom::Start(bytes)).map_err(failed)?;
    Ok(file)
}
