//! Runs that are ended at any moment and taken up again come to the same: the same record, weights and table.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use allot_base::{Error, Result};

use crate::files::{copy, made, write};
use crate::{Chance, Class, Outcome, Place, runs};

/// Where the runs are that are killed: a config each, of half a second to some seconds.
const WORKLOADS: &str = "tests/cases/campaign";

/// How often one run is ended at most; after that it may go on.
const MOST: usize = 6;

/// What ends it: half of them without a word.
const SIGNALS: [&[&str]; 6] = [&["KILL"], &["KILL"], &["KILL"], &["TERM"], &["TERM", "TERM"], &["INT"]];

#[derive(Default)]
pub struct Kills {
    workloads: Vec<Workload>,
    /// How long each takes as a whole, of those that were made: the first case of each makes it.
    takes: RefCell<BTreeMap<String, Option<Duration>>>,
}

struct Workload {
    name: String,
    /// `train`, `compare`, `pretrain` or `simulate`.
    verb: &'static str,
    /// Its config.
    text: String,
}

impl Class for Kills {
    fn name(&self) -> &'static str {
        "kills"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        let mut uniform = Vec::new();
        for file in files(&at.root.join(WORKLOADS), Path::new(""))? {
            let name = file.with_extension("").to_string_lossy().into_owned();
            let text = config(at, &name)?;
            let verb = verb(&text);
            if name.starts_with("uniform") {
                uniform.push(text.clone());
            }
            self.workloads.push(Workload { name, verb, text });
        }
        // And under every policy that ships, as it is.
        for policy in allot_component::shipped::names() {
            for text in &uniform {
                let lag = if text.contains("\nlag") { "-lag-1" } else { "" };
                let text = text.replace("use = \"uniform\"", &format!("use = \"{policy}\""));
                self.workloads.push(Workload { name: format!("shipped-{policy}{lag}"), verb: "train", text });
            }
        }
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        // As often one that was made for this as a policy that ships.
        let is_shipped = chance.below(2) == 0;
        let all =
            self.workloads.iter().filter(|workload| workload.name.starts_with("shipped-") == is_shipped);
        let Workload { name, verb, text } = chance.of_these(&all.collect::<Vec<_>>());
        let made = self.takes.borrow().get(name).copied();
        let takes = made.map_or_else(|| whole(at, name, verb, text), Ok)?;
        self.takes.borrow_mut().insert(name.clone(), takes);
        let Some(takes) = takes else {
            return Ok(Outcome::Kept(format!("{name}: not run, it wants more than these runs have")));
        };
        if let Some(what) = ended_and_resumed(at, chance, name, verb, takes, &mut |_| ())? {
            return Ok(Outcome::Broken(what));
        }
        let kind = name.split("-lag").next().unwrap_or(name);
        let lag = if kind == name { "" } else { ", with a lag" };
        Ok(Outcome::Kept(format!("{kind}{lag}")))
    }
}

/// A run, which takes so long, is ended again and again and resumed; `between` is done before it is started each time. What is
/// not as promised, if anything is not.
pub fn ended_and_resumed(
    at: &Place<'_>,
    chance: &mut Chance,
    name: &str,
    verb: &str,
    takes: Duration,
    between: &mut dyn FnMut(&mut Chance),
) -> Result<Option<String>> {
    let reference = at.reference.join(name);
    copy(&reference.join("run.toml"), &at.folder.join("run.toml"))?;
    let (times, mut told) = (1 + chance.below(MOST), String::new());
    for kill in 0.. {
        let words = next(&at.folder, verb);
        between(chance);
        let child = runs::started(Command::new(at.program), &at.folder, &words)?;
        if kill < times {
            // Now and then before it has begun at all, mostly within the run.
            let after = takes.mul_f64(chance.share() * 0.9);
            let signals = *chance.of_these(&SIGNALS);
            let _ = writeln!(told, "{words:?}: {signals:?} after {after:?}");
            let pid = child.id();
            let until = Instant::now() + after;
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            for signal in signals {
                // It may be over.
                let _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).output();
            }
        }
        let ended = runs::ended(child)?;
        write(&at.folder.join("killed.txt"), &told)?;
        let killed = kill < times && ended.code.is_none() && !ended.hung;
        // Killed, or it paused because it was asked to.
        if kill < times && !matches!(ended.code, Some(0 | 2)) {
            count(&at.reference)?;
        }
        if let Some(fault) = ended.fault().filter(|_| !killed) {
            return Ok(Some(format!("{name}, after\n{told}{fault}")));
        }
        if ended.code == Some(2) {
            return Ok(Some(format!("{name}, after\n{told}it refused to go on: {}", ended.said)));
        }
        if ended.code == Some(0) {
            let other = differs(&reference.join("out"), &at.folder.join("out"))?;
            return Ok(other.map(|file| format!("{name}, after\n{told}`{file}` is another")));
        }
        if kill > times + 2 {
            return Ok(Some(format!("{name}, after\n{told}it does not come to its end: {}", ended.said)));
        }
    }
    unreachable!("the loop ends by returning")
}

/// One more that was ended: the campaign's folder knows how many were.
fn count(reference: &Path) -> Result<()> {
    let path = reference.with_file_name("ended");
    let so_far: u64 =
        std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    write(&path, (so_far + 1).to_string())
}

/// The config of a run that may be killed.
pub fn config(at: &Place<'_>, name: &str) -> Result<String> {
    let path = at.root.join(WORKLOADS).join(format!("{name}.toml"));
    std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))
}

/// The command that takes a config.
pub fn verb(text: &str) -> &'static str {
    match text {
        text if text.contains("\n[compare]") => "compare",
        text if text.contains("\n[[lessons]]") => "pretrain",
        text if text.contains("\n[world]") => "simulate",
        _ => "train",
    }
}

/// The words by which it is begun, or goes on with what there is.
fn next<'w>(folder: &Path, verb: &'w str) -> Vec<&'w str> {
    let out = folder.join("out");
    match verb {
        "train" | "compare" if has_begun(folder, verb) => vec![verb, "--resume", "out"],
        // The model is there, and was only not measured yet.
        "pretrain" if out.exists() && !folder.join("out.unfinished").exists() => {
            vec![verb, "run.toml", "--out", "out", "--measure-only"]
        }
        // It takes seconds, and is begun anew in a new folder.
        "simulate" => {
            let _ = std::fs::remove_dir_all(&out);
            vec![verb, "run.toml", "--out", "out"]
        }
        _ => vec![verb, "run.toml", "--out", "out"],
    }
}

/// Whether there is a run, or a comparison, that can be resumed.
pub fn has_begun(folder: &Path, verb: &str) -> bool {
    folder.join("out").join(if verb == "train" { "resolved.toml" } else { "compare.toml" }).exists()
}

/// A new folder of the class, with nothing but a config in it.
pub fn laid(at: &Place<'_>, name: &str, text: &str) -> Result<PathBuf> {
    let folder = at.reference.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    made(&folder)?;
    write(&folder.join("run.toml"), text)?;
    Ok(folder)
}

/// A whole run of this config, from which the others must not differ. How long it takes; none where a policy that ships wants
/// more than the run has.
pub fn whole(at: &Place<'_>, name: &str, verb: &str, text: &str) -> Result<Option<Duration>> {
    let folder = laid(at, name, text)?;
    let since = Instant::now();
    let ended = runs::run(at.program, &folder, &[verb, "run.toml", "--out", "out"])?;
    if ended.code == Some(2) && name.starts_with("shipped-") {
        return Ok(None);
    }
    if ended.code != Some(0) {
        return Err(Error::new(format!("{name}: the run that all are held against fails: {}", ended.said)));
    }
    Ok(Some(since.elapsed()))
}

/// The first file that is not the same, of those that have no times in them: records, weights, tables.
pub fn differs(whole: &Path, other: &Path) -> Result<Option<String>> {
    for file in files(whole, Path::new(""))? {
        let name = file.to_string_lossy();
        let counts = name.ends_with("record.jsonl")
            || name.ends_with(".safetensors")
            || name.ends_with("resolved.toml")
            || name.contains("report/tables/");
        if counts && std::fs::read(whole.join(&file)).ok() != std::fs::read(other.join(&file)).ok() {
            return Ok(Some(name.into_owned()));
        }
    }
    Ok(None)
}

/// All files below a folder, by their paths in it.
fn files(folder: &Path, within: &Path) -> Result<Vec<PathBuf>> {
    let here = folder.join(within);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&here).map_err(|e| Error::file("read", &here, &e))?.flatten() {
        let path = within.join(entry.file_name());
        if entry.path().is_dir() {
            all.extend(files(folder, &path)?);
        } else {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}
