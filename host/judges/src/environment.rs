//! Environments: Python packages that make problems and grade answers. One script does both. Its grading
//! side is a grader process as in [`crate::processes`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use allot_base::{Error, Result};
use allot_tasks::Problem;
use allot_tasks::dataset::EnvironmentConfig;
use serde::Deserialize;

use crate::protocol::words;

/// The script's source.
pub(crate) const SCRIPT: &str = include_str!("environment.py");

/// A problem, as the script writes it.
#[derive(Deserialize)]
struct Made {
    /// The index of its task in the request.
    task: usize,
    /// The row, as one line of JSON.
    row: String,
}

/// The field of a gold answer that names the grading package.
#[derive(Deserialize)]
struct Gold {
    environment: String,
}

/// Runs a Python that makes an environment's problems. Writes one file of rows for each task into a folder. Rows for
/// `episodes` have in their gold answers what an episode begins with.
///
/// # Errors
///
/// A Python without the package, or tasks that the package does not have.
pub fn make(
    config: &EnvironmentConfig,
    episodes: bool,
    python: &[String],
    folder: &Path,
) -> Result<Vec<PathBuf>> {
    let name = config.package.name();
    let Some((program, arguments)) = python.split_first() else {
        return Err(Error::new("the command of the Python that makes problems is empty"));
    };
    let failed = |why: String| {
        let (shown, version) = (python.join(" "), config.package.tested());
        let section = if episodes { "environment.process" } else { "reward.process" };
        let hint = format!(
            "install {name} with `pip install {name}=={version}`, or set `command` in [{section}] to a Python \
             that has it"
        );
        Error::new(format!("`{shown}` could not generate the problems of {name}: {why}")).hint(hint)
    };
    let mut command = Command::new(program);
    command.args(arguments).args(["-c", SCRIPT, "make"]);
    command.envs([("PYTHONIOENCODING", "utf-8"), ("PYTHONHASHSEED", "0")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    if let Some(mut stdin) = stdin {
        // A process that exits at once prints the reason.
        let _ = stdin.write_all(config.request(episodes).to_string().as_bytes());
    }
    let listener = std::thread::spawn(move || {
        let lines = stderr.map(|stderr| BufReader::new(stderr).split(b'\n'));
        lines
            .into_iter()
            .flatten()
            .map_while(std::result::Result::ok)
            .filter(|line| !line.trim_ascii().is_empty())
            .last()
    });
    let mut files = files(config, folder)?;
    for line in stdout.map(|stdout| BufReader::new(stdout).lines()).into_iter().flatten() {
        let line = line.map_err(|e| failed(e.to_string()))?;
        let garbage = || failed(format!("it printed `{}`", words(line.as_bytes())));
        let made: Made = serde_json::from_str(&line).map_err(|_| garbage())?;
        let (file, path) = files.get_mut(made.task).ok_or_else(garbage)?;
        writeln!(file, "{}", made.row).map_err(|e| Error::file("write", path, &e))?;
    }
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if !status.success() {
        let last = listener.join().ok().flatten().map(|line| words(&line));
        return Err(failed(last.unwrap_or_else(|| format!("it ended with {status}"))));
    }
    let close = |(mut file, path): (BufWriter<File>, PathBuf)| match file.flush() {
        Ok(()) => Ok(path),
        Err(e) => Err(Error::file("write", &path, &e)),
    };
    files.into_iter().map(close).collect()
}

/// Opens one file for each task, in a folder of its own.
fn files(config: &EnvironmentConfig, folder: &Path) -> Result<Vec<(BufWriter<File>, PathBuf)>> {
    let mut files = Vec::new();
    for (i, task) in config.tasks.iter().enumerate() {
        let stem: String = task.name().chars().map(|c| if "/\\:".contains(c) { '_' } else { c }).collect();
        let inside = folder.join(i.to_string());
        let path = inside.join(format!("{stem}.jsonl"));
        let file = std::fs::create_dir(&inside).and_then(|()| File::create(&path));
        files.push((BufWriter::new(file.map_err(|e| Error::file("write", &path, &e))?), path));
    }
    Ok(files)
}

/// Returns the names of the packages that grade answers to these problems.
pub(crate) fn packages<'p>(problems: impl Iterator<Item = &'p Problem>) -> Vec<String> {
    let of = |problem: &Problem| {
        let gold: Gold = serde_json::from_str(problem.gold.first()?).ok()?;
        Some(gold.environment)
    };
    problems.filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns whether a gold answer belongs to an environment's problem.
pub(crate) fn reads(gold: &str) -> bool {
    serde_json::from_str::<Gold>(gold).is_ok()
}
