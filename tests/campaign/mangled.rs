//! Files that are not what they should be: cut, flipped, doubled, with numbers that nobody would write. Whatever reads them says
//! so in a sentence, and soon.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

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
        let is = |ending| from.extension().is_some_and(|of| of == ending);
        let is_text = !(is("wasm") || is("safetensors"));
        // Once, mostly: what is changed everywhere is refused at the first of it.
        for _ in 0..chance.of_these(&[1, 1, 1, 2, 4]).to_owned() {
            if is_text { mangle_text(&mut bytes, chance) } else { mangle_bytes(&mut bytes, chance) }
        }
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
        if let Some(fault) = ended.fault() {
            return Ok(Outcome::Broken(format!("{file}, allot {command}: {fault}")));
        }
        if ended.is_silent() {
            return Ok(Outcome::Broken(format!(
                "{file}, allot {command}: it failed without an error: {}",
                ended.said
            )));
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

fn place(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().unwrap_or(to);
    made(folder)?;
    copy(from, to)
}
