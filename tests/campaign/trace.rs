//! What a run did to its folder, read from a trace of its calls to the system.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// What changes files and folders, and what says which they are.
pub const CALLS: &str = "trace=open,openat,creat,write,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,\
                     ftruncate,fsync,fdatasync,close,lseek,writev,pwritev,link,linkat,truncate,copy_file_range,sendfile,\
                     clone,clone3,fork,vfork";

/// A file or folder, whatever it is called.
pub type Node = usize;

/// The folder that the run's folder is in.
pub const ROOT: Node = 0;

/// What is done to files and folders, in order.
pub enum Op {
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

/// All that a run did to its folder.
#[derive(Default)]
pub struct Watched {
    pub ops: Vec<Op>,
    /// Which nodes are folders.
    pub folders: BTreeSet<Node>,
    /// The number of the operation after which each checkpoint, or the comparison, lasts.
    pub checkpoints: Vec<usize>,
}

/// A trace as it is read.
pub struct Watching {
    /// The folder that the run was started in.
    home: PathBuf,
    next: Node,
    /// What is where now.
    names: HashMap<PathBuf, Node>,
    /// Open files, by process and number.
    open: HashMap<(String, String), Opened>,
    /// Whether a checkpoint, or a comparison's config, got its name and does not last yet.
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
    /// All that a run did that was started in `home`.
    pub fn of(trace: &str, home: &Path) -> Watched {
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
        let processes = processes(trace);
        // A call that another one came into is told in two pieces.
        let mut begun: HashMap<&str, String> = HashMap::new();
        for line in trace.lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let rest = rest.trim_start();
            if let Some(first) = rest.strip_suffix("<unfinished ...>") {
                begun.insert(thread, first.trim_end().to_owned());
            } else if let Some(resumed) = rest.strip_prefix("<... ") {
                let second = resumed.split_once(" resumed>").map_or("", |(_, second)| second);
                watching.call(
                    process(&processes, thread),
                    &(begun.remove(thread).unwrap_or_default() + second),
                    &mut lengths,
                );
            } else {
                watching.call(process(&processes, thread), rest, &mut lengths);
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

    fn call(&mut self, process: &str, text: &str, lengths: &mut HashMap<Node, usize>) -> Option<()> {
        let (name, rest) = text.split_once('(')?;
        let (args, result) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(')'))?;
        let result: i64 = result.trim_start_matches([' ', '=']).split(' ').next()?.parse().ok()?;
        if result < 0 {
            return None;
        }
        let args = arguments(args);
        let fd = |number: &str| (process.to_owned(), number.to_owned());
        // Paths of calls that name a folder begin one later: the folder at hand, or an open one.
        let first = usize::from(name.ends_with("at") || name == "renameat2");
        let path = |watching: &Self, i: usize| {
            let text = args.get(i).and_then(|arg| string(arg))?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let folder = args
                .get(i.wrapping_sub(1))
                .filter(|_| first > 0)
                .and_then(|from| watching.open.get(&fd(from)));
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
                self.open.insert(fd(&result.to_string()), Opened { node, path, at: 0, appends });
            }
            "close" => _ = self.open.remove(&fd(&args[0])),
            "write" | "pwrite64" => {
                let opened = self.open.get_mut(&fd(&args[0]))?;
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
            "lseek" => self.open.get_mut(&fd(&args[0]))?.at = result as usize,
            "ftruncate" => {
                let (node, length) = (self.open.get(&fd(&args[0]))?.node, args.get(1)?.parse().ok()?);
                lengths.insert(node, length);
                self.watched.ops.push(Op::Resize { node, length });
            }
            "fsync" | "fdatasync" => {
                let node = self.open.get(&fd(&args[0]))?.node;
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
                self.renamed |= to == Path::new("out/compare.toml")
                    || to.parent() == Some(Path::new("out/checkpoints")) && new.1.starts_with("step-");
                self.watched.ops.push(Op::Rename { from: old, to: new, node });
            }
            // What the run does not do, or the comparison at the start would not hold.
            _ => {}
        }
        Some(())
    }
}

/// The process of each thread that is none by itself.
fn processes(trace: &str) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let mut begun: HashMap<&str, &str> = HashMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let is_clone = |text: &str| text.starts_with("clone") || text.starts_with("<... clone");
        if !is_clone(rest) {
            continue;
        }
        if rest.ends_with("<unfinished ...>") {
            begun.insert(thread, rest);
            continue;
        }
        let flags = begun.remove(thread).unwrap_or(rest);
        let new = rest.rsplit_once("= ").map_or("", |(_, new)| new.trim());
        if flags.contains("CLONE_THREAD") {
            let of = process(&all, thread).to_owned();
            all.insert(new.to_owned(), of);
        }
    }
    all
}

/// The process that a thread is of.
fn process<'a>(processes: &'a HashMap<String, String>, thread: &'a str) -> &'a str {
    processes.get(thread).map_or(thread, String::as_str)
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
