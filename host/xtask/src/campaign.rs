//! A campaign: many hostile cases of a few classes, each made of a seed and its number, so that any of them can be repeated.
//!
//! It goes on where it was stopped: the folder knows how many cases of each class are done. At a failure it stops, and keeps
//! the case's folder, with what was done in it and what was said.

mod kills;
mod mangled;
mod plans;
mod runs;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use allot_error::{Error, Result};

use crate::files::{made, write};

/// What is asked for.
pub struct Asked {
    /// Classes, by name; all of them if none is named.
    pub classes: Vec<String>,
    /// Cases of each class, in all.
    pub cases: u64,
    /// What all cases are made of.
    pub seed: u64,
    /// Where they are made.
    pub folder: PathBuf,
    /// Begins no case after so many seconds, of which each class has an equal part.
    pub seconds: Option<u64>,
}

/// A class of cases.
trait Class {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Makes what all cases are held against, in a folder of the class. It may be there already.
    fn prepare(&mut self, at: &Place<'_>) -> Result<()>;

    /// Does a case in an empty folder. The text says what a failure is.
    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome>;
}

/// How a case ended.
enum Outcome {
    /// As promised. The word says which kind of case it was, for the table.
    Kept(String),
    /// It was several in one, all as promised: how many of each kind.
    Many(BTreeMap<String, u64>),
    /// Not so: what was seen.
    Broken(String),
}

/// Where a case is made.
struct Place<'a> {
    /// The program.
    program: &'a Path,
    /// The repository.
    root: &'a Path,
    /// What the class prepared.
    reference: PathBuf,
    /// The case's own folder.
    folder: PathBuf,
}

/// Runs a campaign, and prints its table.
///
/// # Errors
///
/// A case broke a promise, or could not be made.
pub fn run(root: &Path, program: &Path, asked: &Asked) -> Result<()> {
    let started = Instant::now();
    let mut classes: Vec<Box<dyn Class>> = vec![Box::new(kills::Kills::default())];
    classes.push(Box::new(plans::Plans));
    classes.extend(mangled::all().into_iter().map(|class| Box::new(class) as Box<dyn Class>));
    if let Some(unknown) =
        asked.classes.iter().find(|name| classes.iter().all(|class| class.name() != **name))
    {
        let known: Vec<_> = classes.iter().map(|class| class.name()).collect();
        return Err(Error::new(format!("there is no class `{unknown}`: {}", known.join(", "))));
    }
    classes.retain(|class| asked.classes.is_empty() || asked.classes.iter().any(|name| name == class.name()));
    let mut tally = Tally::of(&asked.folder)?;
    let all = classes.len() as f64;
    for (i, class) in classes.iter_mut().enumerate() {
        let name = class.name();
        let until = asked.seconds.map(|seconds| seconds as f64 * (i + 1) as f64 / all);
        let folder = asked.folder.join(name);
        let mut place =
            Place { program, root, reference: folder.join("reference"), folder: folder.join("case") };
        made(&place.reference)?;
        class.prepare(&place)?;
        loop {
            let number = tally.done(name, asked.seed);
            if number >= asked.cases || until.is_some_and(|until| started.elapsed().as_secs_f64() > until) {
                break;
            }
            place.folder = folder.join("case");
            let _ = std::fs::remove_dir_all(&place.folder);
            made(&place.folder)?;
            match class.case(&place, &mut Chance::of(asked.seed, name, number))? {
                Outcome::Kept(kind) => tally.add(name, asked.seed, &[(kind, 1)].into())?,
                Outcome::Many(kinds) => tally.add(name, asked.seed, &kinds)?,
                Outcome::Broken(what) => {
                    let kept = folder.join(format!("broken-{}-{number}", asked.seed));
                    let _ = std::fs::remove_dir_all(&kept);
                    std::fs::rename(&place.folder, &kept)
                        .map_err(|e| Error::file("rename", &place.folder, &e))?;
                    write(&kept.join("what.txt"), &what)?;
                    let what = format!("class {name}, seed {}, case {number}: {what}", asked.seed);
                    return Err(Error::new(what).hint(format!("its folder is {}", kept.display())));
                }
            }
        }
        let _ = std::fs::remove_dir_all(folder.join("case"));
    }
    println!("{}", tally.table());
    Ok(())
}

/// Where chance comes from: a counter, hashed (SplitMix64).
pub struct Chance(u64);

impl Chance {
    fn of(seed: u64, class: &str, number: u64) -> Self {
        let mut chance = Self(seed);
        for word in class.bytes().map(u64::from).chain([number]) {
            chance.0 = chance.next() ^ word;
        }
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is at least 1.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// One of these.
    fn of_these<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How many cases are done: by class and seed, and of which kind.
struct Tally {
    path: PathBuf,
    counts: BTreeMap<(String, u64), BTreeMap<String, u64>>,
}

impl Tally {
    fn of(folder: &Path) -> Result<Self> {
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
        Ok(Self { path, counts })
    }

    fn done(&self, class: &str, seed: u64) -> u64 {
        self.counts.get(&(class.to_owned(), seed)).map_or(0, |kinds| kinds.values().sum())
    }

    fn add(&mut self, class: &str, seed: u64, kinds: &BTreeMap<String, u64>) -> Result<()> {
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
    fn table(&self) -> String {
        let mut text = "| class | seed | kind | cases | failures |\n|---|---|---|---|---|".to_owned();
        for ((class, seed), kinds) in &self.counts {
            for (kind, n) in kinds {
                let _ = write!(text, "\n| {class} | {seed} | {kind} | {n} | 0 |");
            }
        }
        text
    }
}
