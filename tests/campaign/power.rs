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
use std::path::Path;
use std::process::Command;

use allot_base::{Error, Result};

use crate::files::{copy, made, write};
use crate::trace::{CALLS, Node, Op, ROOT, Watched, Watching};
use crate::{Chance, Class, Outcome, Place, kills, runs};

/// Runs and comparisons that are watched, of those that are killed.
const WATCHED: [&str; 7] =
    ["uniform", "lora", "pilot-commit", "pilot-commit-lag-1", "repo-lag-2", "compare", "tune"];

#[derive(Default)]
pub struct Power(Vec<(&'static str, &'static str, Watched)>);

impl Class for Power {
    fn name(&self) -> &'static str {
        "power"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        for name in WATCHED {
            let text = kills::config(at, name)?;
            let (folder, verb) = (kills::laid(at, name, &text)?, kills::verb(&text));
            let trace = folder.join("trace");
            let mut command = Command::new("strace");
            command.args(["-f", "--seccomp-bpf", "-xx", "-s", "16777216", "-e", CALLS, "-o"]);
            command.arg(&trace).arg(at.program);
            let ended = runs::ended(runs::started(command, &folder, &[verb, "run.toml", "--out", "out"])?)?;
            if ended.code != Some(0) {
                return Err(Error::new(format!("{name}: the run that is watched fails: {}", ended.said)));
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
            self.0.push((name, verb, watched));
        }
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let (name, verb, watched) = chance.of_these(&self.0);
        let moment = chance.below(watched.ops.len() + 1);
        watched.state(moment, Some(chance)).lay(ROOT, &at.folder)?;
        let lasts = watched.checkpoints.iter().any(|after| *after <= moment);
        let told = format!("{name}, after {moment} of {} operations: ", watched.ops.len());
        // A comparison that is not there yet is begun in the same folder, whatever is in it.
        let anew = *verb == "compare" && !lasts && !kills::has_begun(&at.folder, verb);
        copy(&at.reference.join(name).join("run.toml"), &at.folder.join("run.toml"))?;
        let words: &[&str] =
            if anew { &[verb, "run.toml", "--out", "out"] } else { &[verb, "--resume", "out"] };
        let ended = runs::run(at.program, &at.folder, words)?;
        if let Some(fault) = ended.fault() {
            return Ok(Outcome::Broken(told + &fault));
        }
        if ended.code != Some(0) {
            return Ok(if lasts || *verb == "compare" || ended.is_silent() {
                Outcome::Broken(format!("{told}it does not go on: {}", ended.said))
            } else {
                Outcome::Kept("refused, before a first checkpoint".to_owned())
            });
        }
        Ok(match kills::differs(&at.reference.join(name).join("out"), &at.folder.join("out"))? {
            Some(file) => Outcome::Broken(format!("{told}`{file}` is another")),
            None if anew => Outcome::Kept("a comparison that was not there yet".to_owned()),
            None => Outcome::Kept(format!("{verb}: went on")),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::ROOT;
    use crate::Chance;
    use crate::trace::Watching;

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
