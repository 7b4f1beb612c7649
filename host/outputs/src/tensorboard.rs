//! TensorBoard event files: a run's metrics as scalars, in the format that TensorBoard, `wandb sync`, Aim,
//! SwanLab and trackio import.
//!
//! A file is a sequence of TFRecords (`tensorflow/core/lib/io/record_writer.h`). Each contains the protobuf
//! message `Event` (`tensorflow/core/util/event.proto`). The five fields that a scalar needs are encoded by
//! hand: generated code would be larger than all other output code. Unlike TensorFlow's, file names have no
//! host and no process id.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use allot_base::{Error, Result, lasting};
use allot_record::{Appended, Kept, Mark};

/// Start of a file's name, by which TensorBoard finds it. The seconds since 1970 follow.
const PREFIX: &str = "events.out.tfevents.";
/// End of a file's name, where TensorFlow puts the host's name.
const SUFFIX: &str = ".allot";

/// The event file of a run.
#[derive(Debug)]
pub struct Events(Appended);

impl Events {
    /// Creates an event file in a folder, which is made if it is missing. Fails if the folder already has
    /// one of allot's: TensorBoard would show both as one run.
    pub fn create(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
        if let Some(path) = found(folder)?.first() {
            let what =
                format!("there is an event file in `{}` already: `{}`", folder.display(), path.display());
            return Err(Error::new(what));
        }
        let path = folder.join(format!("{PREFIX}{:010}{SUFFIX}", now() as u64));
        let events = Self::to(Appended::create(&path).map_err(|e| Error::file("write", &path, &e))?)?;
        lasting(folder)?;
        Ok(events)
    }

    /// Opens the only event file in a folder, for a resumed run. Fails if the file does not match its mark,
    /// or if there is not exactly one.
    pub fn kept(folder: &Path, mark: &Mark) -> Result<Kept> {
        let [path] = <[PathBuf; 1]>::try_from(found(folder)?).map_err(|all| {
            let n = all.len();
            Error::new(format!(
                "`{}` should have one event file to go on with, and has {n}",
                folder.display()
            ))
        })?;
        Ok(Kept::open(&path, mark)?)
    }

    /// Resumes a run's file. Events after the checkpoint's mark are cut off.
    pub fn resume(kept: Kept) -> Result<Self> {
        Ok(Self(kept.cut()?))
    }

    /// Begins an event file, by writing the format's version.
    pub fn to(file: Appended) -> Result<Self> {
        let mut events = Self(file);
        events.write(&event(now(), 0, &bytes(3, b"brain.Event:2")))?;
        Ok(events)
    }

    /// Appends a number of a step and passes it to the operating system. The format has 32-bit floats:
    /// counts above 2^24 lose their last digits here, but not in `metrics.jsonl`.
    pub fn scalar(&mut self, tag: &str, step: u32, value: f64) -> Result<()> {
        let mut one = bytes(1, tag.as_bytes());
        one.push(key(2, 5));
        one.extend((value as f32).to_le_bytes());
        self.write(&event(now(), step, &bytes(5, &bytes(1, &one))))
    }

    /// Returns how far the file is written; a checkpoint keeps it for [`Events::kept`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the events are on disk. Call it before a checkpoint that depends on them.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| Error::file("write", self.0.path(), &e))
    }

    /// Appends a TFRecord: length, its checksum, the message, its checksum.
    fn write(&mut self, message: &[u8]) -> Result<()> {
        let length = (message.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(message.len() + 16);
        record.extend(length);
        record.extend(masked(&length).to_le_bytes());
        record.extend(message);
        record.extend(masked(message).to_le_bytes());
        // Written in one piece, so that a reader that follows the file rarely sees half a record.
        self.0.write_all(&record).map_err(|e| Error::file("write", self.0.path(), &e))
    }
}

/// Returns allot's event files in a folder.
fn found(folder: &Path) -> Result<Vec<PathBuf>> {
    let error = |e: std::io::Error| Error::file("read", folder, &e);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            all.push(path);
        }
    }
    Ok(all)
}

/// Returns seconds since 1970, or 0 if the clock is set earlier. They are only displayed.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Encodes `Event { wall_time = 1, step = 2, … }` with one more field, which is already encoded.
fn event(time: f64, step: u32, what: &[u8]) -> Vec<u8> {
    let mut message = vec![key(1, 1)];
    message.extend(time.to_le_bytes());
    message.push(key(2, 0));
    message.extend(varint(u64::from(step)));
    message.extend(what);
    message
}

/// Encodes a protobuf field of bytes, of text or of another message.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let mut encoded = vec![key(field, 2)];
    encoded.extend(varint(content.len() as u64));
    encoded.extend(content);
    encoded
}

/// Returns the key before a protobuf field: its number, below 16 here, and its wire type. 0 is a varint, 1
/// is 8 bytes, 2 is a length and that many bytes, 5 is 4 bytes.
const fn key(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

/// Encodes a varint: seven bits per byte, lowest first; the eighth bit is set if more bytes follow.
fn varint(mut n: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    while n >= 0x80 {
        encoded.push(n as u8 | 0x80);
        n >>= 7;
    }
    encoded.push(n as u8);
    encoded
}

/// TFRecord's checksum: a rotated and offset CRC-32C, so that it remains reliable for bytes that contain
/// checksums (`tensorflow/core/lib/hash/crc32c.h`).
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4), bit by bit: a step's events are only 3 kB, so that a table
/// or a crate would not pay off.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    }

    #[test]
    fn numbers_are_cut_into_sevens() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(127), [127]);
        assert_eq!(varint(300), [0xac, 2], "the example of protobuf's own documentation");
        assert_eq!(varint(u64::from(u32::MAX)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
