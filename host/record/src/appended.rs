//! A file that is only ever appended to, and a hash that runs along with it. A checkpoint keeps how far the
//! file had come and the hash by then; a run goes on with it only where it still holds that.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{RecordError, Result, hex};

/// How far a file had come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Its bytes by then.
    pub bytes: u64,
    /// Their sha256, in hexadecimal.
    pub sha256: String,
}

/// A file as it is written, from its start on or from a mark on.
pub struct Appended {
    to: Box<dyn Write + Send + Sync>,
    path: PathBuf,
    bytes: u64,
    hash: Sha256,
}

/// A file that holds what its mark says. What was written after it is still there.
#[derive(Debug)]
pub struct Kept {
    file: File,
    path: PathBuf,
    bytes: u64,
    hash: Sha256,
}

impl Appended {
    /// A new file. Fails where there is something of that name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self::to(Box::new(file), path))
    }

    /// A file written to `writer`; `path` is what it is called.
    pub fn to(writer: Box<dyn Write + Send + Sync>, path: &Path) -> Self {
        Self { to: writer, path: path.to_owned(), bytes: 0, hash: Sha256::new() }
    }

    /// How far it has come.
    pub fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, sha256: hex(&self.hash.clone().finalize()) }
    }

    /// Its bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it is called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until all of it is on the disk, under its name: a file that somebody removed is noticed. To be
    /// called before a checkpoint that counts on it.
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
    /// Opens a file that has come so far, and maybe farther. Fails where it is shorter, or holds something
    /// else. Nothing is changed yet: of several files all can be looked at first.
    pub fn open(path: &Path, mark: &Mark) -> Result<Self> {
        let failed = |e| RecordError::file("read", path, e);
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let (hash, bytes) = hashed(Read::take(&mut file, mark.bytes)).map_err(failed)?;
        if bytes < mark.bytes {
            // Lengthening it would fill the gap with zeros, which no reader of any of a run's files takes.
            return Err(RecordError::Short { path: path.to_owned(), found: bytes, counted: mark.bytes });
        }
        if hex(&hash.clone().finalize()) != mark.sha256 {
            return Err(RecordError::Changed { path: path.to_owned(), counted: bytes });
        }
        Ok(Self { file, path: path.to_owned(), bytes, hash })
    }

    /// Cuts off what was written after the mark, and goes on from there.
    pub fn cut(mut self) -> Result<Appended> {
        let cut = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
        cut.map_err(|e| RecordError::file("write", &self.path, e))?;
        Ok(Appended { to: Box::new(self.file), path: self.path, bytes: self.bytes, hash: self.hash })
    }
}

impl Mark {
    /// How far a file has come.
    pub fn of(path: &Path) -> Result<Self> {
        let hashed = File::open(path).and_then(hashed);
        let (hash, bytes) = hashed.map_err(|e| RecordError::file("read", path, e))?;
        Ok(Self { bytes, sha256: hex(&hash.finalize()) })
    }

    /// Fails where a file that was finished at this mark holds anything else.
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

/// The running hash of all that a reader has, and how much that was.
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
