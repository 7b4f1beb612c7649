//! Append-only files with a running hash. A checkpoint stores a file's length and hash. A run resumes only
//! if the file still begins with the same bytes.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use allot_allocation::shown;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{RecordError, Result, hex};

/// A position in a file, with the hash of the content up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Length, in bytes.
    pub bytes: u64,
    /// The sha256 of these bytes, in hexadecimal.
    pub sha256: String,
}

/// A file that is being appended to.
pub struct Appended {
    to: Box<dyn Write + Send + Sync>,
    path: PathBuf,
    bytes: u64,
    hash: Sha256,
}

/// A file whose beginning matches its mark. Content after the mark is still there.
#[derive(Debug)]
pub struct Kept {
    file: File,
    path: PathBuf,
    bytes: u64,
    hash: Sha256,
}

impl Appended {
    /// Creates a file. Fails if the path exists.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self::to(Box::new(file), path))
    }

    /// Returns a file that writes to `writer`. `path` is its name in error messages.
    pub fn to(writer: Box<dyn Write + Send + Sync>, path: &Path) -> Self {
        Self { to: writer, path: path.to_owned(), bytes: 0, hash: Sha256::new() }
    }

    /// Returns the current length and hash.
    pub fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, sha256: hex(&self.hash.clone().finalize()) }
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until all content is on the disk. Opens the file by name, so a removed file is noticed. Call
    /// it before writing a checkpoint that relies on the file.
    pub fn sync(&self) -> io::Result<()> {
        OpenOptions::new().write(true).open(&self.path)?.sync_data()
    }
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl fmt::Debug for Appended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appended")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// Opens a file whose content up to the mark must be unchanged. Fails if the file is shorter or
    /// different. Changes nothing yet, so that several files can be checked first.
    pub fn open(path: &Path, mark: &Mark) -> Result<Self> {
        let failed = |e| RecordError::file("read", path, e);
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let (hash, bytes) = hashed(Read::take(&mut file, mark.bytes)).map_err(failed)?;
        if bytes < mark.bytes {
            // Extending the file would fill the gap with zeros, which no reader of a run's files accepts.
            return Err(RecordError::Short { path: path.to_owned(), found: bytes, counted: mark.bytes });
        }
        if hex(&hash.clone().finalize()) != mark.sha256 {
            return Err(RecordError::Changed { path: path.to_owned(), counted: bytes });
        }
        Ok(Self { file, path: path.to_owned(), bytes, hash })
    }

    /// Removes the content after the mark. Returns the file, ready for appending.
    pub fn cut(mut self) -> Result<Appended> {
        let cut = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
        cut.map_err(|e| RecordError::file("write", &self.path, e))?;
        Ok(Appended { to: Box::new(self.file), path: self.path, bytes: self.bytes, hash: self.hash })
    }
}

impl Mark {
    /// Returns the length and hash of a file.
    pub fn of(path: &Path) -> Result<Self> {
        let hashed = File::open(path).and_then(hashed);
        let (hash, bytes) = hashed.map_err(|e| RecordError::file("read", path, e))?;
        Ok(Self { bytes, sha256: hex(&hash.finalize()) })
    }

    /// Fails if a finished file differs from this mark.
    pub fn is_of(&self, path: &Path) -> Result<()> {
        let found = Self::of(path)?;
        if found.bytes < self.bytes {
            let (found, counted) = (found.bytes, self.bytes);
            return Err(RecordError::Short { path: path.to_owned(), found, counted });
        }
        if found != *self {
            return Err(RecordError::Changed { path: path.to_owned(), counted: self.bytes });
        }
        Ok(())
    }
}

/// Hashes all bytes of a reader. Returns the running hash and the number of bytes.
fn hashed(mut from: impl Read) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match from.read(&mut part)? {
            0 => return Ok((hash, bytes)),
            n => {
                hash.update(&part[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// Returns the complete lines of a file, one after the other; none if there is no file.
pub fn whole_lines<T: DeserializeOwned>(path: &Path) -> Result<impl Iterator<Item = Result<T>>> {
    let mut lines = match File::open(path) {
        Ok(file) => Some(BufReader::new(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(RecordError::file("read", path, e)),
    };
    let (mut line, mut number) = (Vec::new(), 0);
    Ok(std::iter::from_fn(move || {
        line.clear();
        if let Err(e) = lines.as_mut()?.read_until(b'\n', &mut line) {
            lines = None;
            return Some(Err(RecordError::file("read", path, e)));
        }
        number += 1;
        line.ends_with(b"\n").then(|| {
            serde_json::from_slice(&line).map_err(|e| RecordError::Line {
                path: path.to_owned(),
                number,
                reason: shown::line(&e.to_string(), shown::LINE),
            })
        })
    }))
}
