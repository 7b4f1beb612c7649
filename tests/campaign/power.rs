//! The power goes: what a run's folder may be after it, and that the run goes on from there to the same end.
//!
//! A whole run is watched once, with all that it writes (`strace`). A case takes a moment of it and makes a folder that a machine
//! could come back with: what was synchronised by then is there; what was not is there, or is not, or in part, or as zeros. It is the
//! method of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014), on one model of a file system:
//! - A file's bytes last once `fsync` or `fdatasync` of it is back; of later ones any number, in order.
//! - A folder's names last once `fsync` of it is back; of later changes any number, in order. A case either lets folders differ in how
//!   far they came, as POSIX allows, or keeps one order for all of them and takes any `fsync` for all names, as journals do.
//! - A rename is whole or not at all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use allot_error::{Error, Result};

use crate::files::{copy, made, write};
use crate::{Chance, Class, Outcome, Place, kills, runs};

/// Runs that are watched, of those that are killed.
const WATCHED: [&str; 4] = ["uniform", "pilot-commit", "pilot-commit-lag-1", "repo-lag-2"];

/// A file or folder, whatever it is called.
type Node = usize;

/// The folder that the run's folder is in.
const ROOT: Node = 0;

/// What is done to files and folders, in order.
enum Op {
    /// A name in a folder.
    Link {
        folder: Node,
        name: String,
        node: Node,
    },
    Unlink {
        folder: Node,
        name: String,
    },
    Rename {
        from: (Node, String),
        to: (Node, String),
        node: Node,
    },
    /// A file's bytes.
    Write {
        node: Node,
        at: usize,
        bytes: Vec<u8>,
    },
    Resize {
        node: Node,
        length: usize,
    },
    /// What was done to it so far lasts.
    Sync {
        node: Node,
    },
}

#[derive(Default)]
pub struct Power(Vec<(&'static str, Watched)>);

/// All that a run did to its folder.
#[derive(Default)]
struct Watched {
    ops: Vec<Op>,
    /// Which nodes are folders.
    folders: BTreeSet<Node>,
    /// The number of the operation after which each checkpoint lasts.
    checkpoints: Vec<usize>,
}

impl Class for Power {
    fn name(&self) -> &'static str {
        "power"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        for name in WATCHED {
            let folder = at.reference.join(name);
            let _ = std::fs::remove_dir_all(&folder);
            made(&folder)?;
            copy(
                &at.root.join(kills::WORKLOADS).join(name).with_extension("toml"),
                &folder.join("run.toml"),
            )?;
            let trace = folder.join("trace");
            let watched = Command::new("strace")
                .args(["-f", "--seccomp-bpf", "-xx", "-s", "16777216", "-e", CALLS, "-o"])
                .arg(&trace)
                .arg(at.program)
                .args(["train", "run.toml", "--out", "out"])
                .current_dir(&folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if !watched.map_err(|e| Error::new(format!("`strace` cannot be started: {e}")))?.success() {
                return Err(Error::new(format!("{name}: the run that is watched fails")));
            }
            let text = std::fs::read_to_string(&trace).map_err(|e| Error::file("read", &trace, &e))?;
            let watched = Watching::of(&text, &folder);
            let _ = std::fs::remove_file(&trace);
            // All that was done makes the folder that is there: or the watching is wrong, and no case of it would say anything.
            let again = folder.join("again");
            watched.state(watched.ops.len(), None).lay(ROOT, &again)?;
            if let Some(file) = kills::differs(&folder.join("out"), &again.join("out"))? {
                return Err(Error::new(format!("{name}: `{file}` was not made of what was watched")));
            }
            if watched.checkpoints.is_empty() {
                return Err(Error::new(format!("{name}: no checkpoint of the run lasts")));
            }
            let _ = std::fs::remove_dir_all(&again);
            self.0.push((name, watched));
        }
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let (name, watched) = chance.of_these(&self.0);
        let moment = chance.below(watched.ops.len() + 1);
        watched.state(moment, Some(chance)).lay(ROOT, &at.folder)?;
        let lasts = watched.checkpoints.iter().any(|after| *after <= moment);
        let told = format!("{name}, after {moment} of {} operations: ", watched.ops.len());
        let ended = runs::run(at.program, &at.folder, &["train", "--resume", "out"])?;
        if let Some(fault) = ended.fault() {
            return Ok(Outcome::Broken(told + &fault));
        }
        if ended.code != Some(0) {
            let sentence = ended.said.lines().any(|line| line.starts_with("error: "));
            return Ok(if lasts || !sentence {
                Outcome::Broken(format!("{told}it does not go on: {}", ended.said))
            } else {
                Outcome::Kept("refused, before a first checkpoint".to_owned())
            });
        }
        Ok(match kills::differs(&at.reference.join(name).join("out"), &at.folder.join("out"))? {
            Some(file) => Outcome::Broken(format!("{told}`{file}` is another")),
            None => Outcome::Kept("went on".to_owned()),
        })
    }
}

/// Files and folders after some operations.
#[derive(Default)]
struct State {
    names: BTreeMap<Node, BTreeMap<String, Node>>,
    bytes: HashMap<Node, Vec<u8>>,
    folders: BTreeSet<Node>,
}

impl Watched {
    /// What there is when the power goes after so many operations; without chance, all that was done.
    fn state(&self, moment: usize, mut chance: Option<&mut Chance>) -> State {
        let mut state = State { folders: self.folders.clone(), ..State::default() };
        let ops = &self.ops[..moment];
        // How far each folder and each file came: to some operation after the last that made it last.
        let mut synced: HashMap<Node, usize> = HashMap::new();
        let mut any = 0;
        for (i, op) in ops.iter().enumerate() {
            if let Op::Sync { node } = op {
                synced.insert(*node, i);
                any = i;
            }
        }
        // One order for all names, or one for each folder.
        let mut one_order =
            |chance: &mut Chance| (chance.below(2) == 0).then(|| any + chance.below(moment - any + 1));
        let journal = chance.as_deref_mut().and_then(&mut one_order);
        // How far each came, and what became of a file's next write: nothing of it, half of it, or its length with zeros.
        let (mut far, mut next) = (Vec::new(), Vec::new());
        for node in 0..=self.nodes() {
            let least = synced.get(&node).copied().unwrap_or(0);
            let Some(chance) = &mut chance else {
                far.push(moment);
                next.push(0);
                continue;
            };
            far.push(match chance.below(3) {
                0 => least,
                1 => moment,
                _ => least + chance.below(moment - least + 1),
            });
            next.push(chance.below(4));
        }
        let names_last = |folder: Node, i: usize| i < journal.unwrap_or(far[folder]);
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Link { folder, name, node } if names_last(*folder, i) => {
                    state.names.entry(*folder).or_default().insert(name.clone(), *node);
                }
                Op::Unlink { folder, name } if names_last(*folder, i) => {
                    state.names.entry(*folder).or_default().remove(name);
                }
                Op::Rename { from, to, node } if names_last(to.0, i) => {
                    state.names.entry(from.0).or_default().remove(&from.1);
                    state.names.entry(to.0).or_default().insert(to.1.clone(), *node);
                }
                Op::Write { node, at, bytes } => {
                    let file = state.bytes.entry(*node).or_default();
                    let part: &[u8] = match next[*node] {
                        _ if i < far[*node] => bytes.as_slice(),
                        1 => {
                            next[*node] = 0;
                            &bytes[..bytes.len() / 2]
                        }
                        2 => {
                            file.resize(file.len().max(at + bytes.len()), 0);
                            &[]
                        }
                        _ => continue,
                    };
                    file.resize(file.len().max(at + part.len()), 0);
                    file[*at..at + part.len()].copy_from_slice(part);
                }
                Op::Resize { node, length } if i < far[*node] => {
                    state.bytes.entry(*node).or_default().resize(*length, 0);
                }
                _ => {}
            }
        }
        state
    }

    fn nodes(&self) -> usize {
        self.ops
            .iter()
            .map(|op| match op {
                Op::Link { node, .. }
                | Op::Rename { node, .. }
                | Op::Write { node, .. }
                | Op::Resize { node, .. }
                | Op::Sync { node } => *node,
                Op::Unlink { folder, .. } => *folder,
            })
            .max()
            .unwrap_or(0)
    }
}

impl State {
    /// Writes a folder down.
    fn lay(&self, folder: Node, at: &Path) -> Result<()> {
        made(at)?;
        for (name, node) in self.names.get(&folder).into_iter().flatten() {
            if self.folders.contains(node) {
                self.lay(*node, &at.join(name))?;
            } else {
                write(&at.join(name), self.bytes.get(node).map(Vec::as_slice).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

/// What changes files and folders, and what says which they are.
const CALLS: &str = "trace=open,openat,creat,write,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,\
                     ftruncate,fsync,fdatasync,close,lseek,writev,pwritev,link,linkat,truncate,copy_file_range,sendfile";

/// A trace as it is read.
struct Watching {
    /// The folder that the run was started in.
    home: PathBuf,
    next: Node,
    /// What is where now.
    names: HashMap<PathBuf, Node>,
    open: HashMap<String, Opened>,
    /// Whether a checkpoint got its name and does not last yet.
    renamed: bool,
    watched: Watched,
}

/// An open file.
#[derive(Clone)]
struct Opened {
    node: Node,
    path: PathBuf,
    at: usize,
    appends: bool,
}

impl Watching {
    fn of(trace: &str, home: &Path) -> Watched {
        let mut watching = Self {
            home: home.to_owned(),
            next: ROOT + 1,
            names: HashMap::from([(PathBuf::new(), ROOT)]),
            open: HashMap::new(),
            renamed: false,
            watched: Watched::default(),
        };
        watching.watched.folders.insert(ROOT);
        let mut lengths = HashMap::new();
        // A call that another one came into is told in two pieces.
        let mut begun: HashMap<&str, String> = HashMap::new();
        for line in trace.lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let rest = rest.trim_start();
            if let Some(first) = rest.strip_suffix("<unfinished ...>") {
                begun.insert(thread, first.trim_end().to_owned());
            } else if let Some(resumed) = rest.strip_prefix("<... ") {
                let second = resumed.split_once(" resumed>").map_or("", |(_, second)| second);
                watching.call(&(begun.remove(thread).unwrap_or_default() + second), &mut lengths);
            } else {
                watching.call(rest, &mut lengths);
            }
        }
        watching.watched
    }

    /// A path within the folder that is watched.
    fn within(&self, text: &str) -> Option<PathBuf> {
        let path = PathBuf::from(text);
        let path = if path.is_absolute() { path.strip_prefix(&self.home).ok()?.to_owned() } else { path };
        let path: PathBuf =
            path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
        (path.as_os_str().is_empty() || path.starts_with("out")).then_some(path)
    }

    /// The folder and the name of a path.
    fn place(&self, path: &Path) -> Option<(Node, String)> {
        let folder = *self.names.get(path.parent()?)?;
        Some((folder, path.file_name()?.to_string_lossy().into_owned()))
    }

    fn linked(&mut self, path: PathBuf, is_folder: bool) -> Option<Node> {
        let (folder, name) = self.place(&path)?;
        let node = self.next;
        self.next += 1;
        if is_folder {
            self.watched.folders.insert(node);
        }
        self.watched.ops.push(Op::Link { folder, name, node });
        self.names.insert(path, node);
        Some(node)
    }

    fn call(&mut self, text: &str, lengths: &mut HashMap<Node, usize>) -> Option<()> {
        let (name, rest) = text.split_once('(')?;
        let (args, result) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(')'))?;
        let result: i64 = result.trim_start_matches([' ', '=']).split(' ').next()?.parse().ok()?;
        if result < 0 {
            return None;
        }
        let args = arguments(args);
        // Paths of calls that name a folder begin one later: the folder at hand, or an open one.
        let first = usize::from(name.ends_with("at") || name == "renameat2");
        let path = |watching: &Self, i: usize| {
            let text = args.get(i).and_then(|arg| string(arg))?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let folder =
                args.get(i.wrapping_sub(1)).filter(|_| first > 0).and_then(|from| watching.open.get(from));
            match folder {
                Some(folder) if !text.starts_with('/') => Some(folder.path.join(text)),
                _ => watching.within(&text),
            }
        };
        let ops = self.watched.ops.len();
        match name {
            "open" | "openat" | "creat" => {
                let flags = args.get(first + 1).cloned().unwrap_or_default();
                let path = path(self, first)?;
                let node = match self.names.get(&path) {
                    Some(node) => *node,
                    None if flags.contains("O_CREAT") => self.linked(path.clone(), false)?,
                    None => return None,
                };
                if flags.contains("O_TRUNC") && lengths.insert(node, 0).is_some_and(|length| length > 0) {
                    self.watched.ops.push(Op::Resize { node, length: 0 });
                }
                let appends = flags.contains("O_APPEND");
                self.open.insert(result.to_string(), Opened { node, path, at: 0, appends });
            }
            "close" => _ = self.open.remove(&args[0]),
            "write" | "pwrite64" => {
                let opened = self.open.get_mut(&args[0])?;
                let mut bytes = string(args.get(1)?)?;
                bytes.truncate(result as usize);
                let length = lengths.entry(opened.node).or_default();
                let at = if name == "pwrite64" {
                    args.get(3)?.parse().ok()?
                } else {
                    if opened.appends {
                        opened.at = *length;
                    }
                    opened.at += bytes.len();
                    opened.at - bytes.len()
                };
                *length = (*length).max(at + bytes.len());
                self.watched.ops.push(Op::Write { node: opened.node, at, bytes });
            }
            "lseek" => self.open.get_mut(&args[0])?.at = result as usize,
            "ftruncate" => {
                let (node, length) = (self.open.get(&args[0])?.node, args.get(1)?.parse().ok()?);
                lengths.insert(node, length);
                self.watched.ops.push(Op::Resize { node, length });
            }
            "fsync" | "fdatasync" => {
                let node = self.open.get(&args[0])?.node;
                self.watched.ops.push(Op::Sync { node });
                // A checkpoint lasts once what the run has beside it does.
                if self.names.get(Path::new("out")) == Some(&node) && std::mem::take(&mut self.renamed) {
                    self.watched.checkpoints.push(ops + 1);
                }
            }
            "mkdir" | "mkdirat" => {
                let path = path(self, first)?;
                self.linked(path, true)?;
            }
            "unlink" | "unlinkat" | "rmdir" => {
                let path = path(self, first)?;
                let (folder, name) = self.place(&path)?;
                self.names.remove(&path)?;
                self.watched.ops.push(Op::Unlink { folder, name });
            }
            "link" | "linkat" => {
                let (from, to) = (path(self, first)?, path(self, 2 * first + 1)?);
                let node = *self.names.get(&from)?;
                let (folder, name) = self.place(&to)?;
                self.watched.ops.push(Op::Link { folder, name, node });
                self.names.insert(to, node);
            }
            "rename" | "renameat" | "renameat2" => {
                let (from, to) = (path(self, first)?, path(self, 2 * first + 1)?);
                let (old, new) = (self.place(&from)?, self.place(&to)?);
                let node = *self.names.get(&from)?;
                // With all that is below it.
                let below: Vec<PathBuf> =
                    self.names.keys().filter(|path| path.starts_with(&from)).cloned().collect();
                for path in below {
                    let moved = path.strip_prefix(&from).ok()?;
                    let moved = if moved.as_os_str().is_empty() { to.clone() } else { to.join(moved) };
                    let node = self.names.remove(&path)?;
                    self.names.insert(moved, node);
                }
                self.renamed |=
                    to.parent() == Some(Path::new("out/checkpoints")) && new.1.starts_with("step-");
                self.watched.ops.push(Op::Rename { from: old, to: new, node });
            }
            // What the run does not do, or the comparison at the start would not hold.
            _ => {}
        }
        Some(())
    }
}

/// The arguments of a call: texts are in quotes.
fn arguments(text: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    for piece in text.split_inclusive(['"', ',']) {
        let last = all.len() - 1;
        if piece.ends_with(',') && !quoted {
            all[last] += &piece[..piece.len() - 1];
            all.push(String::new());
        } else {
            quoted ^= piece.ends_with('"');
            all[last] += piece;
        }
    }
    all.iter().map(|arg| arg.trim().to_owned()).collect()
}

/// The bytes of a text in quotes, all of them as `\xNN`.
fn string(arg: &str) -> Option<Vec<u8>> {
    let inner = arg.strip_prefix('"')?.strip_suffix('"')?;
    inner.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{ROOT, Watching};
    use crate::Chance;

    const TRACE: &str = "\
7 mkdir(\"\\x6f\\x75\\x74\", 0777) = 0
7 openat(AT_FDCWD, \"\\x6f\\x75\\x74\\x2f\\x61\", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3
7 write(3, \"\\x68\\x69\", 2) = 2
7 fsync(3 <unfinished ...>
8 openat(AT_FDCWD, \"\\x6e\\x6f\", O_RDONLY) = -1 ENOENT (No such file)
7 <... fsync resumed>) = 0
7 write(3, \"\\x21\", 1) = 1
7 rename(\"\\x6f\\x75\\x74\\x2f\\x61\", \"\\x6f\\x75\\x74\\x2f\\x62\") = 0
";

    #[test]
    fn what_was_synchronised_is_there_and_the_rest_may_be() {
        let watched = Watching::of(TRACE, "/nowhere".as_ref());
        assert_eq!(watched.ops.len(), 6);
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..2_000 {
            let state = watched.state(6, Some(&mut Chance::of(1, "power", n)));
            let out = state.names.get(&ROOT).and_then(|names| names.get("out").copied());
            let Some(names) = out.and_then(|out| state.names.get(&out)) else {
                seen.insert("no name".to_owned());
                continue;
            };
            for (name, node) in names {
                let text = String::from_utf8_lossy(&state.bytes[node]).into_owned();
                assert!(text.starts_with("hi"), "what was synchronised is gone: {text:?}");
                seen.insert(format!("{name} {text:?}"));
            }
        }
        // In any order of names and bytes: the folder was never synchronised.
        let all = ["a \"hi!\"", "a \"hi\"", "a \"hi\\0\"", "b \"hi!\"", "b \"hi\"", "b \"hi\\0\"", "no name"];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }
}
