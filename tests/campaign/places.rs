//! Places where a run has a hard time: a call of the system that fails, a disk that is full, a folder that goes, a second process
//! at work, few files, little stack, no home, odd names and languages. It says so in a sentence, and when the place is as it
//! should be it goes on to the same end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use allot_base::{Error, Result};

use crate::files::{copy, made};
use crate::{Chance, Class, Outcome, Place, kills, runs};

/// Runs that have a hard time.
const RUNS: [&str; 4] = ["uniform", "pilot-commit", "pilot-commit-lag-1", "compare"];

/// Calls that fail, each with what it may fail with.
const FAILS: [(&str, &[&str]); 9] = [
    ("write", &["ENOSPC", "EIO", "EDQUOT"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("fdatasync", &["EIO", "ENOSPC"]),
    ("mkdir", &["ENOSPC", "EROFS", "EACCES"]),
    ("openat", &["EMFILE", "ENOSPC", "EROFS", "EACCES"]),
    ("rename", &["EIO", "EXDEV", "ENOSPC"]),
    ("linkat", &["EPERM", "EIO", "EMLINK"]),
    ("unlink", &["EIO", "EROFS"]),
    ("read", &["EIO"]),
];

/// Names of folders that somebody has.
const NAMES: [&str; 7] =
    ["a b", "it's \"q\"", "new\nline", "-o", "ünï 答え", "\u{202e}desrever", "%s{}$HOME*?"];

/// File systems and clocks of `odd.rs`, and whether a run gets to its end there.
const ODD: [(&str, bool); 7] = [
    ("read-only", false),
    ("read-only-here", false),
    ("read-only-elsewhere", true),
    ("no-rename-over", false),
    ("no-links", true),
    ("no-locks", true),
    ("clock", true),
];

pub struct Places;

impl Class for Places {
    fn name(&self) -> &'static str {
        "places"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        for name in RUNS {
            let text = kills::config(at, name)?;
            kills::whole(at, name, kills::verb(&text), &text)?;
        }
        let mut rustc = Command::new("rustc");
        rustc.args(["-O", "--edition", "2024", "--crate-type", "cdylib", "tests/campaign/odd.rs", "-o"]);
        let made = rustc.arg(library(at)).current_dir(at.root).output();
        match made {
            Ok(made) if made.status.success() => Ok(()),
            Ok(made) => Err(Error::new(format!("no odd places: {}", String::from_utf8_lossy(&made.stderr)))),
            Err(e) => Err(Error::new(format!("no odd places: rustc: {e}"))),
        }
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let name = *chance.of_these(&RUNS);
        let whole = at.reference.join(name);
        let mut home = at.folder.clone();
        let (kind, told) = match chance.below(16) {
            0..=4 => {
                let (call, errors) = *chance.of_these(&FAILS);
                let (error, when) = (*chance.of_these(errors), 1 + chance.below(120));
                // Once, or from then on.
                let on = if chance.below(3) == 0 { "+" } else { "" };
                prepared(&whole, &home)?;
                let inject = format!("inject={call}:error={error}:when={when}{on}");
                let mut command = Command::new("strace");
                command.args([
                    "-f",
                    "--seccomp-bpf",
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={call}"),
                    "-e",
                    &inject,
                ]);
                command.arg(at.program);
                let said = run(command, &home, name)?;
                // The system's loader comes first, and what can't be said can't be read.
                let loader = said.code == Some(127);
                let mute = said.is_silent && on == "+" && matches!(call, "write" | "read" | "openat");
                if let Some(fault) = said.fault.filter(|_| !loader && !mute) {
                    return Ok(Outcome::Broken(format!("{name}, {inject}: {fault}")));
                }
                (format!("{call} fails"), inject)
            }
            5 | 6 => {
                let disk = at.folder.join("disk");
                made(&disk)?;
                // From too small to begin to nearly large enough.
                let size = format!("size={}k", 32 + chance.below(2_500));
                let mount = |options: &str| {
                    let done = Command::new("mount")
                        .args(["-t", "tmpfs", "-o", options, "none"])
                        .arg(&disk)
                        .status();
                    done.is_ok_and(|status| status.success())
                };
                if !mount(&size) {
                    return Ok(Outcome::Kept("a full disk: not tried, it takes root".to_owned()));
                }
                home.clone_from(&disk);
                prepared(&whole, &home)?;
                let said = run(Command::new(at.program), &home, name)?;
                // It gets larger, and what is on it stays.
                let larger = mount("remount,size=64m");
                let broken = match (said.fault, larger) {
                    (Some(fault), _) => Some(fault),
                    (None, false) => Some("the disk could not be made larger".to_owned()),
                    (None, true) => went_on(at, name, &whole, &home)?,
                };
                let _ = Command::new("umount").arg(&disk).status();
                return Ok(match broken {
                    Some(fault) => Outcome::Broken(format!("{name}, a disk of {size}: {fault}")),
                    None => Outcome::Kept("a full disk".to_owned()),
                });
            }
            7 => {
                // Beginning to end in a folder with such a name.
                let long = "x".repeat(200);
                home = home.join(chance.of_these(&NAMES)).join(chance.of_these(&["out here", &long]));
                made(&home)?;
                prepared(&whole, &home)?;
                let said = run(Command::new(at.program), &home, name)?;
                if said.code != Some(0) {
                    return Ok(Outcome::Broken(format!("{name}, in {}: {}", home.display(), said.text)));
                }
                ("a folder of an odd name".to_owned(), home.display().to_string())
            }
            8 => {
                prepared(&whole, &home)?;
                let mut command = Command::new("sh");
                let limits =
                    *chance.of_these(&["ulimit -n 64", "ulimit -s 8188", "ulimit -n 256; ulimit -s 4096"]);
                command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(at.program);
                let said = run(command, &home, name)?;
                if said.code != Some(0) {
                    return Ok(Outcome::Broken(format!("{name}, {limits}: {}", said.text)));
                }
                ("few files, little stack".to_owned(), limits.to_owned())
            }
            9 => {
                prepared(&whole, &home)?;
                let mut command = Command::new("env");
                let words: &[&str] = match chance.below(4) {
                    0 => &["-u", "HOME", "-u", "XDG_CACHE_HOME"],
                    1 => &["-i"],
                    2 => &["-u", "XDG_CACHE_HOME", "HOME=/dev/null"],
                    _ => &["LC_ALL=C", "LANG=de_DE.ISO-8859-1", "TZ=Nowhere/Land"],
                };
                command.args(words).arg(at.program);
                let said = run(command, &home, name)?;
                // A model that ships is unpacked somewhere; where that is a file, there is no place for it.
                let no_place = words.contains(&"HOME=/dev/null") && said.fault.is_none();
                if said.code != Some(0) && !no_place {
                    return Ok(Outcome::Broken(format!("{name}, env {words:?}: {}", said.text)));
                }
                ("no home, another language".to_owned(), words.join(" "))
            }
            10..=13 => {
                prepared(&whole, &home)?;
                let (odd, ends) = *chance.of_these(&ODD);
                let word = if odd == "clock" { format!("clock-{}", chance.next()) } else { odd.to_owned() };
                let mut command = Command::new(at.program);
                command.env("LD_PRELOAD", library(at)).env("ODD", &word);
                let said = run(command, &home, name)?;
                if let Some(fault) = said.fault {
                    return Ok(Outcome::Broken(format!("{name}, {word}: {fault}")));
                }
                if ends && said.code != Some(0) {
                    return Ok(Outcome::Broken(format!("{name}, {word}: {}", said.text)));
                }
                (odd.to_owned(), word)
            }
            14 => {
                // Its folder goes while it is at work.
                prepared(&whole, &home)?;
                let child = begun(Command::new(at.program), &home, name)?;
                std::thread::sleep(Duration::from_millis(chance.below(500) as u64));
                let _ = std::fs::remove_dir_all(home.join("out"));
                let ended = runs::ended(child)?;
                if let Some(fault) = ended.fault() {
                    return Ok(Outcome::Broken(format!("{name}, whose folder was removed: {fault}")));
                }
                return Ok(Outcome::Kept("a folder that is removed".to_owned()));
            }
            _ => {
                // Two at once: one of them does it, and the other says that it is done.
                prepared(&whole, &home)?;
                let mut children = Vec::new();
                for _ in 0..2 {
                    children.push(begun(Command::new(at.program), &home, name)?);
                    std::thread::sleep(Duration::from_millis(chance.below(60) as u64));
                }
                let mut codes = Vec::new();
                for child in children {
                    let ended = runs::ended(child)?;
                    if let Some(fault) = ended.fault() {
                        return Ok(Outcome::Broken(format!("{name}, one of two: {fault}")));
                    }
                    codes.push(ended.code);
                }
                if codes.iter().filter(|code| **code == Some(0)).count() != 1 {
                    return Ok(Outcome::Broken(format!("{name}, two at once ended with {codes:?}")));
                }
                ("two at once".to_owned(), String::new())
            }
        };
        Ok(match went_on(at, name, &whole, &home)? {
            Some(fault) => Outcome::Broken(format!("{name}, {told}: {fault}")),
            None => Outcome::Kept(kind),
        })
    }
}

/// What is laid over the program where a place is odd.
fn library(at: &Place<'_>) -> PathBuf {
    at.reference.join("libodd.so")
}

/// Whether it runs a comparison.
fn verb(name: &str) -> &'static str {
    if name == "compare" { "compare" } else { "train" }
}

fn prepared(whole: &Path, home: &Path) -> Result<()> {
    made(home)?;
    copy(&whole.join("run.toml"), &home.join("run.toml"))
}

fn begun(command: Command, home: &Path, name: &str) -> Result<Child> {
    runs::started(command, home, &[verb(name), "run.toml", "--out", "out"])
}

/// How a process ended.
struct Said {
    code: Option<i32>,
    fault: Option<String>,
    /// That is the fault: it failed and did not say why.
    is_silent: bool,
    text: String,
}

fn run(command: Command, home: &Path, name: &str) -> Result<Said> {
    let ended = runs::ended(begun(command, home, name)?)?;
    let (fault, is_silent) = (ended.fault(), ended.is_silent());
    let fault = fault.or_else(|| is_silent.then(|| format!("it failed without an error: {}", ended.said)));
    Ok(Said { code: ended.code, fault, is_silent, text: ended.said })
}

/// What is wrong with where a run comes to when it is taken up, or begun, in a place as it should be.
fn went_on(at: &Place<'_>, name: &str, whole: &Path, home: &Path) -> Result<Option<String>> {
    let mut ended = None;
    if kills::has_begun(home, verb(name)) {
        let resumed = runs::run(at.program, home, &[verb(name), "--resume", "out"])?;
        if let Some(fault) = resumed.fault() {
            return Ok(Some(format!("resumed, {fault}")));
        }
        // Before a first checkpoint there is nothing to go on from, and it says so.
        let early = !home.join("out/checkpoints").exists() && verb(name) == "train";
        if resumed.code == Some(2) && !early {
            return Ok(Some(format!("it does not go on: {}", resumed.said)));
        }
        ended = resumed.code;
    }
    if ended != Some(0) {
        // What is there is somebody's: another folder.
        let _ = std::fs::remove_dir_all(home.join("out"));
        let anew = runs::run(at.program, home, &[verb(name), "run.toml", "--out", "out"])?;
        if anew.code != Some(0) {
            return Ok(Some(format!("begun anew, it fails: {}", anew.said)));
        }
    }
    let other = kills::differs(&whole.join("out"), &home.join("out"))?;
    Ok(other.map(|file| format!("`{file}` is another")))
}
