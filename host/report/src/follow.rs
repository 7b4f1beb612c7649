//! From a run's folder to its history: once, or again and again while the run goes on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use allot_record::{Line, Reader, RecordError, Times};

use crate::history::{Fold, History, Rollout};

/// Reads a run's history, from its folder or its record. `each` is given every rollout once its fate is
/// known. What is wrong with a record that has a head is told in the history, which goes as far as the
/// record can be believed.
pub fn read(path: &Path, each: &mut dyn FnMut(Rollout)) -> Result<History, RecordError> {
    let (mut reader, head) = Reader::open(path)?;
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let (times, mut troubles) = match Times::read(folder) {
        Ok(times) => (times, Vec::new()),
        Err(error) => (Vec::new(), vec![format!("its times can't be read: {error}")]),
    };
    let name = if path.is_dir() { path } else { folder };
    let mut fold = Fold::new(name.display().to_string(), head, &times);
    let mut whole = true;
    for line in reader.by_ref() {
        let taken = line.map_err(|error| error.to_string()).and_then(|line| fold.take(line, each));
        if let Err(reason) = taken {
            troubles.push(format!("{reason}; what comes after that is left out"));
            whole = false;
            break;
        }
    }
    let mut history = fold.finish();
    match &history.end {
        Some(end) if !end.normal => troubles.push(format!("it was stopped: {}", end.reason)),
        Some(_) => {}
        None if reader.cut() => {
            let line = reader.line();
            troubles.push(format!("it is unfinished, and its last line, {line}, is cut off in the middle"));
        }
        None if whole => troubles.push("it is unfinished: its record has no end".to_owned()),
        None => {}
    }
    history.troubles = troubles;
    Ok(history)
}

/// A run that is looked at while it goes on.
pub struct Follower {
    path: PathBuf,
    fold: Fold,
    /// Bytes of the record taken so far.
    taken: u64,
    /// Lines of the times taken so far.
    times: usize,
    /// Why the rest can't be believed.
    trouble: Option<String>,
}

impl Follower {
    /// A run's folder, its lines not read yet but the first.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let (_, head) = Reader::open(path)?;
        let fold = Fold::new(path.display().to_string(), head, &[]);
        Ok(Self { path: path.to_owned(), fold, taken: 0, times: 0, trouble: None })
    }

    /// Takes what was written since. A record that got shorter belongs to a run that was taken up again
    /// from a checkpoint: it is read anew.
    pub fn poll(&mut self) -> Result<(), RecordError> {
        let path = self.path.join("record.jsonl");
        let failed = |error| RecordError::File { verb: "read", path: path.clone(), error };
        let mut file = File::open(&path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < self.taken {
            *self = Self::open(&self.path)?;
        }
        let times = Times::read(&self.path).unwrap_or_default();
        if times.len() < self.times {
            *self = Self::open(&self.path)?;
        }
        times[self.times..].iter().for_each(|time| self.fold.time(time));
        self.times = times.len();
        if self.trouble.is_some() {
            return Ok(());
        }
        let first = self.taken == 0;
        file.seek(SeekFrom::Start(self.taken)).map_err(failed)?;
        let mut lines = BufReader::new(file);
        let mut bytes = Vec::new();
        let mut head = first;
        loop {
            bytes.clear();
            lines.read_until(b'\n', &mut bytes).map_err(failed)?;
            if bytes.last() != Some(&b'\n') {
                return Ok(());
            }
            self.taken += bytes.len() as u64;
            if std::mem::take(&mut head) {
                continue;
            }
            let line = serde_json::from_slice::<Line>(&bytes).map_err(|error| error.to_string());
            if let Err(reason) = line.and_then(|line| self.fold.take(line, &mut |_| {})) {
                self.trouble = Some(reason);
                return Ok(());
            }
        }
    }

    /// The history so far.
    pub fn history(&self) -> &History {
        self.fold.history()
    }

    /// Why it goes no further, where it can't be believed any more.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}
