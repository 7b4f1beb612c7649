//! Slurm: runs as the tasks of a job array, by `sbatch`, `squeue` and `scancel`. It needs no accounting: a
//! task's exit code is in a file, and the queue shows for some minutes why Slurm ended a task.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use allot_base::{Error, Result};

use crate::cluster::{Queue, Refusal, Standing};
use crate::executor::Setup;
use crate::submission::{Submission, quoted};

/// Slurm's queue.
pub struct Slurm {
    at_once: Option<usize>,
    threads: usize,
    options: String,
    /// The largest array size that the cluster accepts.
    largest: usize,
    /// Commands that run in the background.
    behind: Vec<Child>,
}

/// Slurm's default for the largest array size.
const LARGEST: usize = 1001;

impl Slurm {
    /// Returns the cluster of this machine's Slurm commands.
    pub fn new(setup: &Setup<'_>) -> Result<Self> {
        let options = setup.slurm.unwrap_or_default().trim();
        if options.contains(['\n', '\r']) || (!options.is_empty() && !options.starts_with('-')) {
            let what = format!("{options:?} are not valid options for sbatch");
            return Err(Error::new(what)
                .hint("write them as in --slurm-options \"--partition=short --time=2:00:00\""));
        }
        let config = said("scontrol", &["show", "config"])?;
        let line = config.lines().find_map(|line| line.strip_prefix("MaxArraySize"));
        let largest = line.and_then(|line| line.split('=').nth(1)?.trim().parse().ok());
        Ok(Self {
            at_once: setup.at_once,
            threads: setup.threads,
            options: options.to_owned(),
            largest: largest.unwrap_or(LARGEST),
            behind: Vec::new(),
        })
    }

    fn script(&self, submission: &Submission) -> Result<String> {
        let last = submission.runs.len() - 1;
        let limit = self.at_once.map(|n| format!("%{n}")).unwrap_or_default();
        let output = submission.folder.join("%a.out");
        let own = if self.options.is_empty() { String::new() } else { format!("#SBATCH {}\n", self.options) };
        // Slurm would expand a `%` in a folder's name.
        if submission.folder.display().to_string().contains(['%', '"', '\\']) {
            let what = format!("Slurm can't write to `{}`", submission.folder.display());
            return Err(Error::new(what).hint("choose a folder without %, \" and \\ in its name: --out"));
        }
        Ok(format!(
            "#!/bin/bash\n\
             #SBATCH --cpus-per-task={threads}\n\
             {own}\
             #SBATCH --job-name={name}\n\
             #SBATCH --array=0-{last}{limit}\n\
             #SBATCH --output=\"{output}\"\n\
             #SBATCH --no-requeue\n\
             exec bash {script} \"$SLURM_ARRAY_TASK_ID\"\n",
            threads = self.threads,
            name = submission.name,
            output = output.display(),
            script = quoted(submission.script_path().as_os_str())?,
        ))
    }
}

impl Queue for Slurm {
    const KEY: &'static str = "slurm";
    const NAME: &'static str = "Slurm";

    /// Submits one array after the other, because the limit of concurrent runs is per array.
    fn room(&self, with_it: usize) -> usize {
        if with_it == 0 { self.largest.saturating_sub(1).max(1) } else { 0 }
    }

    fn submit(&mut self, submission: &Submission) -> std::result::Result<(), Refusal> {
        let path = submission.folder.join("array.sbatch");
        let script = self.script(submission).map_err(Refusal::No)?;
        submission.write("array.sbatch", &script).map_err(Refusal::No)?;
        let text = path.display().to_string();
        match said("sbatch", &["--parsable", &text]) {
            Ok(_) => Ok(()),
            Err(error) => {
                // Whatever the error was: either Slurm has all tasks under this name, or it has none.
                match self.standing(submission) {
                    Ok(standing) if !standing.is_empty() => Ok(()),
                    Ok(_) => {
                        let hint = format!(
                            "see {text} for what was submitted, and set options with --slurm-options"
                        );
                        Err(Refusal::No(error.hint(hint)))
                    }
                    Err(_) => Err(Refusal::Unknown(error)),
                }
            }
        }
    }

    fn standing(&mut self, submission: &Submission) -> Result<BTreeMap<usize, Standing>> {
        self.behind.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let name = format!("--name={}", submission.name);
        let format = "--format=%K|%T|%r|%N";
        let text = said("squeue", &["--me", &name, "--states=all", "--array", "--noheader", format])?;
        Ok(text.lines().filter_map(standing).collect())
    }

    fn cancel(&mut self, submission: &Submission) -> Result<()> {
        let name = format!("--name={}", submission.name);
        said("scancel", &["--me", "--state=PENDING", &name])?;
        // Some versions repeat the signal until it has arrived, so it may arrive more than once.
        let told = ["--me", "--state=RUNNING", "--batch", "--signal=USR1", &name];
        let child = command("scancel").args(told).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.behind.push(child.map_err(|e| missing("scancel", &e))?);
        Ok(())
    }
}

/// Parses a line of the queue: a task's number, its state, the reason why it waits, and its node.
fn standing(line: &str) -> Option<(usize, Standing)> {
    let mut fields = line.split('|').map(str::trim);
    let (number, state) = (fields.next()?.parse().ok()?, fields.next()?);
    let (reason, node) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let at = if node.is_empty() { String::new() } else { format!(" on {node}") };
    // Ordinary reasons for waiting are not reported.
    let plain = ["", "None", "Resources", "Priority", "JobArrayTaskLimit", "BeginTime", "Cleaning"];
    let standing = match state {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" => {
            Standing::Queued((!plain.contains(&reason)).then(|| reason.to_owned()))
        }
        "RUNNING" | "COMPLETING" | "STAGE_OUT" | "SIGNALING" | "SUSPENDED" | "STOPPED" => Standing::Running,
        "COMPLETED" | "FAILED" => Standing::Ended,
        "TIMEOUT" => Standing::Cut(format!("it reached the time limit of its Slurm job{at}")),
        "OUT_OF_MEMORY" => Standing::Cut(format!("it exceeded the memory of its Slurm job{at}")),
        "CANCELLED" => Standing::Cut(format!("its Slurm job was cancelled{at}")),
        "NODE_FAIL" | "BOOT_FAIL" => Standing::Cut(format!("its node failed{at}")),
        "PREEMPTED" => Standing::Cut(format!("another Slurm job preempted it{at}")),
        other => Standing::Cut(format!("Slurm ended it{at}: {other}")),
    };
    Some((number, standing))
}

/// Returns the output of a Slurm command.
fn said(name: &str, arguments: &[&str]) -> Result<String> {
    let done = command(name).args(arguments).output().map_err(|e| missing(name, &e))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    // The last line is the least specific.
    let lines: Vec<&str> = text.lines().map(|line| line.rsplit("error: ").next().unwrap_or(line)).collect();
    let words = lines.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or("it failed");
    Err(Error::new(format!("{name}: {}", words.trim())))
}

/// Returns a Slurm command in its own process group, so that Ctrl-C on this terminal does not reach it.
fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

fn missing(command: &str, error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        let error = Error::new(format!("there is no `{command}` on this machine"));
        error.hint("run this where Slurm's commands are installed, such as a login node")
    } else {
        Error::new(format!("`{command}` could not be started: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_queue_are_understood() {
        let cut = |words: &str| Standing::Cut(words.to_owned());
        for (line, task, stands) in [
            ("3|PENDING|Priority|", 3, Standing::Queued(None)),
            ("3|PENDING|PartitionTimeLimit|", 3, Standing::Queued(Some("PartitionTimeLimit".to_owned()))),
            ("0|RUNNING|None|n1", 0, Standing::Running),
            ("11|COMPLETED|None|n1", 11, Standing::Ended),
            ("11|FAILED|NonZeroExitCode|n1", 11, Standing::Ended),
            ("1|TIMEOUT|TimeLimit|n1", 1, cut("it reached the time limit of its Slurm job on n1")),
            ("1|CANCELLED|None|", 1, cut("its Slurm job was cancelled")),
            ("1|DEADLINE|x|n1", 1, cut("Slurm ended it on n1: DEADLINE")),
        ] {
            assert_eq!(standing(line), Some((task, stands)), "{line}");
        }
        assert_eq!(standing("N/A|RUNNING|None|n1"), None);
    }
}
