//! The file that rliable reads: `scores.npz`, an array of runs × tasks × points for each arm.
//!
//! In Python, `dict(numpy.load("scores.npz"))` is rliable's `score_dict` for curves; with only the last
//! point, `scores[:, :, -1]`, it is that for aggregates. Missing values are NaN.

use std::io::{Cursor, Write as _};

use allot_allocation::shown;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An arm's name and its scores: runs × tasks × points.
pub type Named = (String, Vec<Vec<Vec<f64>>>);

/// Returns the bytes of the file. Shorter runs and tasks are padded with NaN. If a zip file cannot
/// distinguish two names, the later one gets a number.
pub fn npz(arms: &[Named]) -> std::io::Result<Vec<u8>> {
    let mut file = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut taken: Vec<String> = Vec::new();
    for (name, runs) in arms {
        let plain = entry(name);
        let numbered = (2..).map(|n| format!("{plain}_{n}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !taken.contains(name));
        let free = free.unwrap_or(plain);
        file.start_file(format!("{free}.npy"), stored)?;
        taken.push(free);
        file.write_all(&npy(runs))?;
    }
    Ok(file.finish()?.into_inner())
}

/// Returns an array of float64 in NumPy's format, version 1.0.
fn npy(runs: &[Vec<Vec<f64>>]) -> Vec<u8> {
    let tasks = runs.iter().map(Vec::len).max().unwrap_or(0);
    let points = runs.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let shape = format!("({}, {tasks}, {points})", runs.len());
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version and length take 10 bytes, the line feed one; data start at a multiple of 64.
    let room = (10 + header.len() + 1).next_multiple_of(64) - 11;
    header.extend(std::iter::repeat_n(' ', room - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for run in runs {
        for task in 0..tasks {
            for point in 0..points {
                let score = run.get(task).and_then(|t| t.get(point)).copied().unwrap_or(f64::NAN);
                bytes.extend(score.to_le_bytes());
            }
        }
    }
    bytes
}

/// Returns a name that is safe in a zip file: without path separators or control characters.
fn entry(name: &str) -> String {
    name.chars().map(|c| if c == '/' || c == '\\' || shown::steers(c) { '_' } else { c }).collect()
}
