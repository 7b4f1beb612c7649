//! A submission to a cluster: a folder below the comparison's, with a note that lists the runs, a script
//! that executes each of them, and their exit codes. The cluster's nodes must see the folder. A comparison
//! that was killed finds its runs there.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use allot_base::{Error, Result};
use allot_record::sha256;
use serde::{Deserialize, Serialize};

use crate::executor::Task;

/// Runs that were submitted to a cluster together.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The absolute path of its folder.
    pub folder: PathBuf,
    /// Its unique name on the cluster.
    pub name: String,
    /// Indices of the comparison's runs in it. The index in this list is the task's number.
    pub runs: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    executor: String,
    name: String,
    runs: Vec<usize>,
}

/// The folder below the comparison's.
const PLACE: &str = "cluster";

impl Submission {
    /// Writes a submission's folder before it is submitted, so that it is found after a kill.
    pub fn new(comparison: &Path, executor: &str, tasks: &[Task]) -> Result<Self> {
        let place = whole(comparison)?.join(PLACE);
        std::fs::create_dir_all(&place).map_err(|e| Error::file("make", &place, &e))?;
        let mut number = folders(&place)?.len();
        let folder = loop {
            number += 1;
            let folder = place.join(format!("{number:03}"));
            match std::fs::create_dir(&folder) {
                Ok(()) => break folder,
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::file("make", &folder, &e)),
            }
        };
        let seen = (&folder, SystemTime::now(), std::process::id());
        let name = format!("allot-{}", &sha256(format!("{seen:?}"))[..10]);
        let made = Self { folder, name, runs: tasks.iter().map(|task| task.run).collect() };
        made.write("task.sh", &made.script(tasks)?)?;
        let note = Note { executor: executor.to_owned(), name: made.name.clone(), runs: made.runs.clone() };
        let note = serde_json::to_string(&note).map_err(|e| Error::new(format!("not JSON: {e}")))?;
        made.write(NOTE, &note)?;
        Ok(made)
    }

    /// Returns the path of the note, which exists while the submission may be running.
    pub fn note(&self) -> PathBuf {
        self.folder.join(NOTE)
    }

    /// Returns the path of the script that executes a task: `task.sh NUMBER`.
    pub fn script_path(&self) -> PathBuf {
        self.folder.join("task.sh")
    }

    /// Returns a task's exit code, if it has ended.
    pub fn exit(&self, task: usize) -> Option<i32> {
        std::fs::read_to_string(self.folder.join(format!("{task}.exit"))).ok()?.trim().parse().ok()
    }

    /// Returns the path of the output of a task's script and of the cluster around it.
    pub fn output(&self, task: usize) -> PathBuf {
        self.folder.join(format!("{task}.out"))
    }

    /// Makes tasks that begin from now on end at once.
    pub fn stop(&self) -> Result<()> {
        self.write("stop", "")
    }

    /// Marks the submission as finished.
    pub fn close(&self) -> Result<()> {
        let note = self.note();
        std::fs::rename(&note, self.folder.join("over.json")).map_err(|e| Error::file("write", &note, &e))
    }

    /// Writes a file into its folder.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|e| Error::file("write", &path, &e))
    }

    fn script(&self, tasks: &[Task]) -> Result<String> {
        let program = std::env::current_exe().map_err(|e| Error::new(format!("no program to run: {e}")))?;
        let here = std::env::current_dir().map_err(|e| Error::new(format!("no current folder: {e}")))?;
        let mut cases = String::new();
        for (number, task) in tasks.iter().enumerate() {
            let arguments: Vec<String> = task.arguments.iter().map(|a| quoted(a)).collect::<Result<_>>()?;
            let log = quoted(task.log.as_os_str())?;
            let _ = writeln!(cases, "{number}) log={log}; set -- {} ;;", arguments.join(" "));
        }
        let (program, here) = (quoted(program.as_os_str())?, quoted(here.as_os_str())?);
        let folder = quoted(self.folder.as_os_str())?;
        Ok(TASK
            .replace("HERE", &here)
            .replace("FOLDER", &folder)
            .replace("PROGRAM", &program)
            .replace("CASES\n", &cases))
    }
}

const NOTE: &str = "submission.json";

/// Executes a run and writes its exit code into a file. Passes on a signal to stop: the run finishes its
/// step and saves. The first `wait` ends with the signal, so the script waits again.
const TASK: &str = r#"#!/bin/bash
# A run of a comparison: task.sh NUMBER
number=$1
folder=FOLDER
ended() {
  echo "$1" > "$folder/$number.part" && mv "$folder/$number.part" "$folder/$number.exit"
  exit "$1"
}
cd HERE || ended 72
case $number in
CASES
*) echo "there is no task $number" >&2; exit 64 ;;
esac
[ -e "$folder/stop" ] && ended 1
PROGRAM "$@" < /dev/null > /dev/null 2> "$log" &
run=$!
asked=
trap 'asked=yes; kill -TERM "$run" 2> /dev/null' TERM USR1
wait "$run"
code=$?
while [ -n "$asked" ]; do
  asked=
  wait "$run"
  again=$?
  [ "$again" = 127 ] || code=$again
done
ended "$code"
"#;

/// Returns the submissions to an executor that may still be running.
pub fn open(comparison: &Path, executor: &str) -> Result<Vec<Submission>> {
    let mut all = Vec::new();
    for folder in folders(&whole(comparison)?.join(PLACE))? {
        let path = folder.join(NOTE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::file("read", &path, &e)),
        };
        let note: Note = serde_json::from_str(&text).map_err(|e| {
            let error = Error::new(format!("`{}` is damaged: {e}", path.display()));
            error.hint("remove it once the cluster has no jobs of this comparison")
        })?;
        if note.executor == executor {
            all.push(Submission { folder, name: note.name, runs: note.runs });
        }
    }
    Ok(all)
}

fn whole(folder: &Path) -> Result<PathBuf> {
    std::path::absolute(folder).map_err(|e| Error::file("find", folder, &e))
}

/// Returns the folders in a folder, sorted; none if it does not exist.
fn folders(place: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(place) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::file("read", place, &e)),
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|p| p.is_dir()).collect();
    all.sort();
    Ok(all)
}

/// Quotes a word for a shell command.
pub fn quoted(word: &OsStr) -> Result<String> {
    let Some(text) = word.to_str().filter(|text| !text.contains(['\n', '\r'])) else {
        return Err(Error::new(format!("{} can't be written into a script", word.display()))
            .hint("use folders whose names are UTF-8 in one line"));
    };
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}
