//! What a campaign did so far.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

use crate::files::{made, write};

/// How many cases are done: by class and seed, and of which kind.
pub struct Tally {
    path: PathBuf,
    counts: BTreeMap<(String, u64), BTreeMap<String, u64>>,
    /// The slowest case that was done now: its seconds and its number.
    slowest: BTreeMap<(String, u64), (f64, u64)>,
}

impl Tally {
    pub fn of(folder: &Path) -> Result<Self> {
        made(folder)?;
        let path = folder.join("tally.tsv");
        let text = if path.exists() {
            std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))?
        } else {
            String::new()
        };
        let mut counts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split('\t');
            let mut word = || words.next().unwrap_or_default();
            let (class, seed, kind, n) = (word(), word(), word(), word());
            let (Ok(seed), Ok(n)) = (seed.parse(), n.parse()) else {
                return Err(Error::new(format!("`{}` is damaged: {line}", path.display())));
            };
            counts.entry((class.to_owned(), seed)).or_default().insert(kind.to_owned(), n);
        }
        Ok(Self { path, counts, slowest: BTreeMap::new() })
    }

    pub fn done(&self, class: &str, seed: u64) -> u64 {
        self.counts.get(&(class.to_owned(), seed)).map_or(0, |kinds| kinds.values().sum())
    }

    /// A case took so many seconds.
    pub fn took(&mut self, class: &str, seed: u64, case: (f64, u64)) {
        let slowest = self.slowest.entry((class.to_owned(), seed)).or_default();
        if case.0 > slowest.0 {
            *slowest = case;
        }
    }

    pub fn add(&mut self, class: &str, seed: u64, kinds: &BTreeMap<String, u64>) -> Result<()> {
        let counts = self.counts.entry((class.to_owned(), seed)).or_default();
        for (kind, n) in kinds {
            *counts.entry(kind.clone()).or_default() += n;
        }
        let mut text = String::new();
        for ((class, seed), kinds) in &self.counts {
            for (kind, n) in kinds {
                let _ = writeln!(text, "{class}\t{seed}\t{kind}\t{n}");
            }
        }
        // As a whole or not at all.
        let aside = self.path.with_extension("new");
        write(&aside, text)?;
        std::fs::rename(&aside, &self.path).map_err(|e| Error::file("rename", &aside, &e))
    }

    /// A table of classes and kinds: a failure would have ended the campaign.
    pub fn table(&self) -> String {
        let mut text =
            "| class | seed | kind | cases | failures | slowest |\n|---|---|---|---|---|---|".to_owned();
        for ((class, seed), kinds) in &self.counts {
            let slowest = self.slowest.get(&(class.clone(), *seed));
            let slowest = slowest.map_or_else(String::new, |(took, n)| format!("{took:.1} s, case {n}"));
            for (kind, n) in kinds {
                let _ = write!(text, "\n| {class} | {seed} | {kind} | {n} | 0 | {slowest} |");
            }
        }
        text
    }
}
