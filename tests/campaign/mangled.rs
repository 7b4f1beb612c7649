//! Files that are not what they should be: cut, flipped, doubled, with numbers that nobody would write. Whatever reads them says
//! so in a sentence, and soon.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use serde_json::Value;

use crate::files::{copy, made, write};
use crate::{Chance, Class, Outcome, Place, runs};

/// A command line's words.
type Words = &'static [&'static str];

/// A kind of file, and commands that read it.
pub struct Mangled {
    name: &'static str,
    /// What is mangled: files of the repository, or folders of components, each with the commands that take it as it is.
    files: &'static [(&'static str, &'static [Words])],
    /// What it is called in the case's folder.
    called: &'static str,
    /// What lies beside it, of the repository.
    beside: &'static [&'static str],
}

const TRAIN: &[Words] = &[&["train", "run.toml", "--dry-run"]];
const COMPARE: &[Words] = &[&["compare", "run.toml", "--dry-run"], &["train", "run.toml", "--dry-run"]];
const SIMULATE: &[Words] = &[&["simulate", "run.toml", "-o", "budget.rollouts=200"]];
const COMPONENT: &[Words] = &[
    &["policies", "./policy.wasm"],
    &["pack", "./policy.wasm"],
    &["simulate", "simulate", "--policy", "./policy.wasm", "-o", "budget.rollouts=300"],
];
const MODEL: &[Words] =
    &[&["train", "tests/cases/training/short.toml", "-o", "model.use=\"./model\"", "-o", "run.steps=1"]];

/// All classes of this kind.
pub fn all() -> Vec<Mangled> {
    vec![
        Mangled {
            name: "configs",
            files: &[
                ("configs/quickstart.toml", TRAIN),
                ("configs/simulate.toml", SIMULATE),
                ("configs/compare-tiny.toml", COMPARE),
                ("configs/compare-quickstart.toml", COMPARE),
                ("configs/evidence/programs.toml", COMPARE),
                ("tests/cases/training/short.toml", TRAIN),
            ],
            called: "run.toml",
            beside: &[],
        },
        Mangled {
            name: "components",
            files: &[("policies/prebuilt", COMPONENT), ("tests/cases/contract-0.1", COMPONENT)],
            called: "policy.wasm",
            beside: &[],
        },
        Mangled {
            name: "models",
            files: &[
                ("host/models/shipped/tiny-sums/model.safetensors", MODEL),
                ("host/models/shipped/tiny-sums/config.json", MODEL),
                ("host/models/shipped/tiny-sums/tokenizer.json", MODEL),
                ("host/models/shipped/tiny-sums/tokenizer_config.json", MODEL),
                ("host/models/shipped/tiny-sums/generation_config.json", MODEL),
            ],
            called: "model/",
            beside: &["tests/cases/training/short.toml"],
        },
    ]
}

impl Class for Mangled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        match self.files.iter().find(|(file, _)| !at.root.join(file).exists()) {
            Some((file, _)) => {
                Err(Error::new(format!("`{file}`, which class {} mangles, is not there", self.name)))
            }
            None => Ok(()),
        }
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let (file, commands) = *chance.of_these(self.files);
        let from = one_of(&at.root.join(file), chance)?;
        let mut bytes = std::fs::read(&from).map_err(|e| Error::file("read", &from, &e))?;
        mangle(&mut bytes, &from, chance);
        for beside in self.beside {
            place(&at.root.join(beside), &at.folder.join(beside))?;
        }
        let name = from.file_name().unwrap_or_default();
        let to = match self.called.strip_suffix('/') {
            // A folder of which one file is not what it should be.
            Some(folder) => {
                let around = from.parent().unwrap_or(at.root);
                for entry in std::fs::read_dir(around).map_err(|e| Error::file("read", around, &e))?.flatten()
                {
                    place(&entry.path(), &at.folder.join(folder).join(entry.file_name()))?;
                }
                at.folder.join(folder).join(name)
            }
            None => at.folder.join(self.called),
        };
        write(&to, &bytes)?;
        let words = *chance.of_these(commands);
        let ended = runs::run(at.program, &at.folder, words)?;
        let (file, command) = (from.display(), words.join(" "));
        if let Some(fault) = ended.fault_of_mangled() {
            return Ok(Outcome::Broken(format!("{file}, allot {command}: {fault}")));
        }
        Ok(Outcome::Kept(if ended.code == Some(2) { "refused" } else { "taken" }.to_owned()))
    }
}

/// This file, or one of the components in this folder.
pub fn one_of(path: &Path, chance: &mut Chance) -> Result<PathBuf> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let files = std::fs::read_dir(path).map_err(|e| Error::file("read", path, &e))?;
    let mut all: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "wasm"));
    all.sort();
    Ok(chance.of_these(&all).clone())
}

/// Numbers and words that nobody would write, and some that somebody might.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "1e308",
    "-1e-308",
    "nan",
    "inf",
    "-inf",
    "18446744073709551615",
    "9223372036854775808",
    "4294967296",
    "99999999999999999999999999",
    "true",
    "\"\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[[[[]]]]",
    "null",
    "0x10",
    "\"../../../../etc/passwd\"",
    "\"\u{202e}\"",
    "1_000_000_000_000",
    "2024-01-01",
];

/// Endings of files that are no text.
const BINARY: [&str; 9] = ["wasm", "safetensors", "parquet", "gguf", "arrow", "feather", "gz", "zst", "pt"];

/// Changes a file by what its ending says that it is. Once, mostly: what is changed everywhere is refused at the first of it.
pub fn mangle(bytes: &mut Vec<u8>, file: &Path, chance: &mut Chance) {
    let of = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    for _ in 0..*chance.of_these(&[1, 1, 1, 2, 4]) {
        match of {
            "pt" if chance.below(3) > 0 => mangle_pickle(bytes, chance),
            _ if BINARY.contains(&of) => mangle_bytes(bytes, chance),
            "jsonl" if chance.below(2) == 0 => mangle_line(bytes, chance),
            _ => mangle_text(bytes, chance),
        }
    }
}

/// Changes values of a line that is JSON.
fn mangle_line(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return;
    }
    let line = chance.below(lines.len());
    if let Ok(mut value) = serde_json::from_str(&lines[line]) {
        change(&mut value, chance);
        lines[line] = value.to_string();
    }
    *bytes = lines.join("\n").into_bytes();
}

/// Changes a pickle in an archive of torch.save, and makes its checksum fit: otherwise that is all that is wrong.
fn mangle_pickle(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let place = |bytes: &[u8], of: &[u8]| bytes.windows(of.len()).position(|window| window == of);
    // `Proto 2` begins it, and `Stop` before the next record ends it.
    let start = place(bytes, b"\x80\x02}");
    let end = start.and_then(|start| Some(start + place(&bytes[start..], b".PK\x07\x08")? + 1));
    let (Some(start), Some(end)) = (start, end) else { return mangle_bytes(bytes, chance) };
    let before = crc32(&bytes[start..end]).to_le_bytes();
    for _ in 0..*chance.of_these(&[1, 1, 2, 8]) {
        let at = start + chance.below(end - start);
        match chance.below(4) {
            0 => bytes[at] ^= 1 << chance.below(8),
            // Mostly one instruction for another.
            1 | 2 => bytes[at] = *chance.of_these(b"}](tlesuKJMGXNq.hj\x85\x86\x87\x88\x89Q2c0R"),
            _ => bytes[at] = chance.next() as u8,
        }
    }
    let after = crc32(&bytes[start..end]).to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 3).filter(|at| bytes[*at..*at + 4] == before).collect();
    for at in places {
        bytes[at..at + 4].copy_from_slice(&after);
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// Changes a text: a value, a line, a piece.
pub fn mangle_text(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return;
    }
    let at = chance.below(lines.len());
    match chance.below(8) {
        // Most cases: another value.
        0..=3 => {
            let valued: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(['=', ':'])).collect();
            if !valued.is_empty() {
                let line = &mut lines[*chance.of_these(&valued)];
                let cut = line.find(['=', ':']).map_or(0, |at| at + 1);
                let comma = if line.trim_end().ends_with(',') { "," } else { "" };
                *line = format!("{} {}{comma}", &line[..cut], chance.of_these(&WORDS));
            }
        }
        4 => _ = lines.remove(at),
        5 => lines.insert(at, lines[chance.below(lines.len())].clone()),
        6 => {
            let of: Vec<char> = lines[at].chars().collect();
            if !of.is_empty() {
                let (from, to) = (chance.below(of.len()), chance.below(of.len()));
                lines[at] =
                    of.iter().enumerate().filter(|(i, _)| *i != from && *i != to).map(|(_, c)| *c).collect();
            }
        }
        _ => lines.truncate(at),
    }
    *bytes = lines.join("\n").into_bytes();
    if chance.below(40) == 0 {
        mangle_bytes(bytes, chance);
    }
}

/// Changes bytes: some flipped, a piece gone, doubled or of zeros, the end gone.
pub fn mangle_bytes(bytes: &mut Vec<u8>, chance: &mut Chance) {
    if bytes.is_empty() {
        return;
    }
    // Heads decide more than tails do.
    let n = if chance.below(2) == 0 { bytes.len() } else { bytes.len().min(4096) };
    let at = chance.below(n);
    let length = (1 + chance.below(64)).min(bytes.len() - at);
    match chance.below(6) {
        0 | 1 => bytes[at] ^= 1 << chance.below(8),
        2 => bytes[at] = chance.next() as u8,
        3 => _ = bytes.drain(at..at + length),
        4 => {
            let piece = bytes[at..at + length].to_vec();
            let to = chance.below(bytes.len());
            _ = bytes.splice(to..to, piece);
        }
        _ if chance.below(3) == 0 => bytes.truncate(at),
        _ => bytes[at..at + length].fill(0),
    }
}

/// Values that nobody expects, as JSON.
const VALUES: [&str; 18] = [
    "null",
    "true",
    "-1",
    "0",
    "1e308",
    "-1e308",
    "18446744073709551615",
    "4294967296",
    "0.5",
    "\"\"",
    "\"NaN\"",
    "[]",
    "{}",
    "[[[]]]",
    "[0, -1, 1e99]",
    "\"\\u0000\"",
    "\"../../../etc/passwd\"",
    "{\"a\": {\"a\": null}}",
];

/// Changes a value somewhere in this one.
pub fn change(value: &mut Value, chance: &mut Chance) {
    let inside = match value {
        Value::Array(all) => all.len(),
        Value::Object(all) => all.len(),
        _ => 0,
    };
    // Mostly not the whole of it.
    if inside == 0 || chance.below(8) == 0 {
        *value = match value {
            Value::Number(number) if chance.below(2) == 0 => {
                let near = number.as_f64().unwrap_or_default() + *chance.of_these(&[-1.0, 1.0, 1e-3, -1e6]);
                if near.fract() == 0.0 { Value::from(near as i64) } else { Value::from(near) }
            }
            _ => serde_json::from_str(VALUES[chance.below(VALUES.len())]).unwrap(),
        };
        return;
    }
    let at = chance.below(inside);
    match value {
        Value::Array(all) => match chance.below(8) {
            0 => _ = all.remove(at),
            1 => all.insert(at, all[at].clone()),
            _ => change(&mut all[at], chance),
        },
        Value::Object(all) => {
            let key = all.keys().nth(at).cloned().unwrap_or_default();
            match chance.below(8) {
                0 => _ = all.remove(&key),
                _ => change(&mut all[&key], chance),
            }
        }
        _ => {}
    }
}

fn place(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().unwrap_or(to);
    made(folder)?;
    copy(from, to)
}
