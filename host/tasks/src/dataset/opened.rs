//! An opened data file: its unpacked bytes and its format.
//!
//! This module knows compression and signatures of files, but not rows. Bytes are read once, from start to
//! end, so that a pipe works like any other file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{DataError, Format};
use crate::place::Place;

/// Maximum length of a row in a text file, in bytes. It limits memory, however large a file unpacks.
pub(super) const LONGEST_ROW: usize = 128 << 20;

/// The byte order mark that some editors write at the start of a file.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Number of first bytes that are inspected.
const HEAD: u64 = 64;

/// An opened data file.
pub(super) struct Opened {
    pub path: PathBuf,
    pub format: Format,
    /// Its content, without a byte order mark.
    pub bytes: Box<dyn BufRead>,
}

/// Kind of a file, by its first bytes.
enum Kind {
    /// Compressed with gzip or zstd.
    Packed(Packer),
    /// Compressed with another program, of this name.
    Other(&'static str),
    /// A format that has a signature.
    Format(Format),
    /// A Git LFS pointer instead of the file.
    Pointer,
}

#[derive(Clone, Copy)]
enum Packer {
    Gzip,
    Zstd,
}

impl Opened {
    /// Opens a file of the format `given`, or else of the format of its first bytes or its ending. Files
    /// compressed with gzip or zstd are unpacked, whatever their ending.
    pub(super) fn open(path: &Path, given: Option<Format>) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|e| DataError::unreadable(path, &e))?;
        let (head, file) = peeked(file).map_err(|e| DataError::unreadable(path, &e))?;
        let (head, bytes): (_, Box<dyn BufRead>) = match Kind::of(&head) {
            Some(Kind::Other(with)) => return Err(DataError::Packed { path: path.to_owned(), with }),
            Some(Kind::Packed(packer)) => {
                let damaged = |e: io::Error| DataError::damaged(first_line(path), &e);
                let (head, bytes) = packer.unpacked(file).and_then(peeked).map_err(damaged)?;
                let inside = match Kind::of(&head) {
                    Some(Kind::Format(format)) => Some(format),
                    _ => given,
                };
                if let Some(format @ (Format::Parquet | Format::Arrow)) = inside {
                    let with = packer.name();
                    return Err(DataError::PackedTable { path: path.to_owned(), format, with });
                }
                (head, Box::new(bytes))
            }
            _ => (head, Box::new(file)),
        };
        let found = match Kind::of(&head) {
            Some(Kind::Format(format)) => Some(format),
            Some(Kind::Pointer) => return Err(DataError::Pointer(path.to_owned())),
            _ => None,
        };
        let format = match (given, found) {
            (Some(given), Some(found)) if given != found => {
                return Err(DataError::OtherFormat { path: path.to_owned(), given, found });
            }
            (given, found) => given
                .or(found)
                .or_else(|| Format::of_ending(path))
                .ok_or_else(|| DataError::UnknownFormat(path.to_owned()))?,
        };
        let mut opened = Self { path: path.to_owned(), format, bytes };
        if head.starts_with(MARK) {
            opened.bytes.fill_buf().map_err(|e| DataError::unreadable(path, &e))?;
            opened.bytes.consume(MARK.len());
        }
        Ok(opened)
    }
}

/// Returns a file's name without its ending and that of its compression.
pub(super) fn stem(path: &Path) -> String {
    let stem = unpacked_name(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_default()
}

/// Returns the path without the ending of its compression.
fn unpacked_name(path: &Path) -> PathBuf {
    match ending(path).as_deref() {
        Some("gz" | "gzip" | "zst" | "zstd") => path.with_extension(""),
        _ => path.to_owned(),
    }
}

fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase())
}

/// Counts the line feeds in some bytes.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// Returns a file's first bytes, and a reader of the whole file.
fn peeked(mut file: impl Read + 'static) -> io::Result<(Vec<u8>, impl BufRead + 'static)> {
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head)?;
    Ok((head.clone(), BufReader::with_capacity(128 << 10, Cursor::new(head).chain(file))))
}

fn first_line(path: &Path) -> Place {
    Place { file: path.to_string_lossy().into(), unit: "line", number: 1 }
}

impl Format {
    /// Returns the format of a file's ending, which that of a compression may follow.
    pub fn of_ending(path: &Path) -> Option<Self> {
        Some(match ending(&unpacked_name(path))?.as_str() {
            // Many `.json` files of the hub have lines, so the first byte decides between lines and array.
            "jsonl" | "ndjson" | "json" => Self::Jsonl,
            "parquet" | "pq" => Self::Parquet,
            "csv" => Self::Csv,
            "tsv" | "tab" => Self::Tsv,
            "arrow" | "feather" | "ipc" => Self::Arrow,
            _ => return None,
        })
    }
}

impl Kind {
    /// Returns the kind of a file that begins with these bytes.
    fn of(head: &[u8]) -> Option<Self> {
        // Skippable frames, which have 16 signatures, may precede a frame of zstd.
        let is_skipped = head.len() >= 4 && head[0] & 0xF0 == 0x50 && head[1..4] == [0x2A, 0x4D, 0x18];
        let signatures: [(&[u8], Self); 11] = [
            (b"\x1F\x8B", Self::Packed(Packer::Gzip)),
            (b"\x28\xB5\x2F\xFD", Self::Packed(Packer::Zstd)),
            (b"PAR1", Self::Format(Format::Parquet)),
            (b"ARROW1", Self::Format(Format::Arrow)),
            (b"\xFF\xFF\xFF\xFF", Self::Format(Format::Arrow)),
            (b"version https://git-lfs.github.com/spec/", Self::Pointer),
            (b"BZh", Self::Other("bzip2")),
            (b"\xFD7zXZ\0", Self::Other("xz")),
            (b"PK\x03\x04", Self::Other("zip")),
            (b"\x04\x22\x4D\x18", Self::Other("lz4")),
            (b"FEA1", Self::Other("Feather V1")),
        ];
        let found = signatures.into_iter().find(|(signature, _)| head.starts_with(signature));
        found.map(|(_, kind)| kind).or(is_skipped.then_some(Self::Packed(Packer::Zstd)))
    }
}

impl Packer {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Returns a reader of the unpacked content: all members of gzip, or all frames of zstd. zstd itself
    /// refuses to hold more than 128 MiB.
    fn unpacked(self, file: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(file)?),
        })
    }
}
