//! An opened data file: its bytes, unpacked, and its format.
//!
//! Knows compression and first bytes, and nothing of rows. Bytes are read once, from first to last, so that a pipe is a
//! file like any other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{DataError, Format};
use crate::place::Place;

/// The longest row of a file of text, in bytes. Whatever a compressed file unpacks to, this is all that is held of it.
pub(super) const LONGEST_ROW: usize = 128 << 20;

/// The byte order mark that some editors write at the start of a file.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// How much of a file its first bytes are.
const HEAD: u64 = 64;

/// An opened data file.
pub(super) struct Opened {
    pub path: PathBuf,
    pub format: Format,
    /// Its content, without a byte order mark.
    pub bytes: Box<dyn BufRead>,
}

/// What first bytes say that a file is.
enum Kind {
    /// Compressed with gzip or zstd.
    Packed(Packer),
    /// Compressed with another program, which is named.
    Other(&'static str),
    /// A file of a format that has a signature.
    Format(Format),
    /// A pointer of Git LFS in place of the file.
    Pointer,
}

#[derive(Clone, Copy)]
enum Packer {
    Gzip,
    Zstd,
}

impl Opened {
    /// Opens a file of the format `given`, or else of the one that its first bytes or its ending name. What is
    /// compressed with gzip or zstd is unpacked, whatever its ending.
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

/// A file's name without its ending, and without that of its compression.
pub(super) fn stem(path: &Path) -> String {
    let stem = unpacked_name(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_default()
}

/// Its path without the ending of its compression.
fn unpacked_name(path: &Path) -> PathBuf {
    match ending(path).as_deref() {
        Some("gz" | "gzip" | "zst" | "zstd") => path.with_extension(""),
        _ => path.to_owned(),
    }
}

fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase())
}

/// How many lines end in some bytes.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// A file's first bytes, and all of it.
fn peeked(mut file: impl Read + 'static) -> io::Result<(Vec<u8>, impl BufRead + 'static)> {
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head)?;
    Ok((head.clone(), BufReader::with_capacity(128 << 10, Cursor::new(head).chain(file))))
}

fn first_line(path: &Path) -> Place {
    Place { file: path.to_string_lossy().into(), unit: "line", number: 1 }
}

impl Format {
    /// The format that a file's ending names; that of a compression may follow it.
    pub fn of_ending(path: &Path) -> Option<Self> {
        Some(match ending(&unpacked_name(path))?.as_str() {
            // Many files of the hub that end in `.json` hold lines, so both are told apart by their first byte.
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
    /// What these first bytes say.
    fn of(head: &[u8]) -> Option<Self> {
        // A frame of zstd may come after frames to skip, of 16 signatures.
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

    /// What a file unpacks to, all members of gzip and frames of zstd one after the other. zstd refuses by itself to
    /// hold more than 128 MiB.
    fn unpacked(self, file: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(file)?),
        })
    }
}
