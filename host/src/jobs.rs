//! The runs of a comparison and their states. Each is this program with `train` or `simulate`, started by
//! an executor. A run's result is read from its folder, wherever it was executed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_config::train::TrainConfig;
use allot_executor::{Executor, Exit, News, Task};
use allot_record::{End, Line};
use allot_report::follow::{self, Follower};

use crate::planned::{PlannedRun, RunKind};
use crate::resume;
use crate::run_dir::{self, free};
use crate::until::{Means, Until};

/// The state of a run.
#[derive(Debug)]
pub enum JobState {
    /// Not started yet.
    Waiting,
    /// The executor has it, and has not begun it.
    Queued,
    /// It is running.
    Running,
    /// It finished normally, with this accuracy.
    Finished(f64),
    /// It failed, for this reason.
    Failed(String),
    /// It was paused, and can be resumed.
    Paused,
}

/// Runs to execute concurrently. Each has a row and a column in the table on the screen.
pub struct Field {
    /// The kind of its runs.
    pub kind: RunKind,
    /// The budget of each run.
    pub means: Means,
    /// The names of the rows.
    pub rows: Vec<String>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The runs, in the order in which they start.
    pub runs: Vec<PlannedRun>,
}

impl Field {
    /// Returns the runs of a row.
    pub fn of_arm(&self, arm: usize) -> impl Iterator<Item = &PlannedRun> {
        self.runs.iter().filter(move |run| run.arm == arm)
    }

    /// Returns how many of its runs have finished.
    pub fn over(&self) -> usize {
        self.runs.iter().filter(|run| over(self, run).is_some()).count()
    }
}

/// A run of a comparison.
pub struct Job {
    /// The run.
    pub planned: PlannedRun,
    /// Its state.
    pub state: JobState,
    /// The finished share of its budget or steps, from 0 to 1.
    pub share: f64,
    /// Its latest accuracy.
    pub accuracy: Option<f64>,
    follower: Option<Follower>,
}

/// All runs of a field.
pub struct Jobs<'f> {
    /// The field that they belong to.
    pub field: &'f Field,
    executor: Box<dyn Executor>,
    /// The runs, in the order in which they start.
    pub all: Vec<Job>,
}

/// Events since the last poll.
#[derive(Default)]
pub struct Happened {
    /// Indices of runs that ended.
    pub ended: Vec<usize>,
    /// Messages of the executor.
    pub words: Vec<String>,
}

impl<'f> Jobs<'f> {
    /// Returns the runs in their current states, including those that still run in this executor.
    pub fn of(field: &'f Field, mut executor: Box<dyn Executor>) -> Result<Self> {
        let adopted = executor.adopt()?;
        let job = |(i, planned): (usize, &PlannedRun)| {
            let adopted = adopted.contains(&i);
            let done = if adopted { None } else { over(field, planned) };
            let (share, accuracy) = (if done.is_some() { 1.0 } else { 0.0 }, done);
            let state =
                if adopted { JobState::Queued } else { done.map_or(JobState::Waiting, JobState::Finished) };
            Job { planned: planned.clone(), state, share, accuracy, follower: None }
        };
        let all = field.runs.iter().enumerate().map(job).collect();
        Ok(Self { field, executor, all })
    }

    /// Returns the events since the last call. If all runs are `stopping`, a run that a signal ended counts
    /// as paused; its unsaved work is repeated.
    pub fn poll(&mut self, stopping: bool) -> Result<Happened> {
        let mut happened = Happened::default();
        for news in self.executor.poll()? {
            match news {
                News::Word(words) => happened.words.push(words),
                News::Began(i) => self.all[i].state = JobState::Running,
                News::Ended(i, exit, more) => {
                    let job = &mut self.all[i];
                    job.state = ended(self.field, &job.planned, exit, more, stopping);
                    if let JobState::Finished(accuracy) = job.state {
                        (job.share, job.accuracy) = (1.0, Some(accuracy));
                    }
                    job.follower = None;
                    happened.ended.push(i);
                }
            }
        }
        Ok(happened)
    }

    /// Starts the next runs, as many as the executor accepts.
    pub fn start(&mut self) -> Result<()> {
        // A run that another process is still saving, of a killed comparison, has to wait.
        let mut ready = Vec::new();
        for (i, job) in self.all.iter().enumerate() {
            if ready.len() == self.executor.room() {
                break;
            }
            if matches!(job.state, JobState::Waiting) && free(&job.planned.folder)? {
                ready.push(i);
            }
        }
        if ready.is_empty() {
            return Ok(());
        }
        for i in &ready {
            cleared(self.field.kind, &self.all[*i].planned)?;
        }
        let tasks: Vec<Task> = ready.iter().map(|i| self.task(*i)).collect();
        self.executor.start(&tasks)?;
        for i in ready {
            self.all[i].state = JobState::Queued;
        }
        Ok(())
    }

    /// Reads the progress of running runs.
    pub fn look(&mut self) {
        let means = self.field.means;
        for job in self.all.iter_mut().filter(|job| matches!(job.state, JobState::Running)) {
            if job.follower.is_none() {
                job.follower = Follower::open(&job.planned.folder).ok();
            }
            let Some(follower) = &mut job.follower else { continue };
            if follower.poll().is_err() {
                job.follower = None;
                continue;
            }
            let history = follower.history();
            job.accuracy = history.scores.last().map(|s| s.accuracy).or(job.accuracy);
            if let Some(step) = history.steps.last() {
                let share = means.share(history.steps.len() as u32, &step.costs);
                job.share = (share / job.planned.until.share.unwrap_or(1.0)).min(1.0);
            }
        }
    }

    /// Asks the runs to pause. Running ones save their state.
    pub fn pause(&mut self) -> Result<()> {
        self.executor.pause()
    }

    /// Returns how many runs the executor has.
    pub fn with_executor(&self) -> usize {
        self.count(|state| matches!(state, JobState::Queued | JobState::Running))
    }

    /// Returns the runs of an arm's trials that have finished with every seed, without failure.
    pub fn finished_trials(&self, arm: usize) -> Vec<&PlannedRun> {
        let of = || self.all.iter().filter(|job| job.planned.arm == arm);
        let open: BTreeSet<Option<u32>> = of()
            .filter(|job| !matches!(job.state, JobState::Finished(_)))
            .map(|job| job.planned.trial)
            .collect();
        of().map(|job| &job.planned).filter(|run| !open.contains(&run.trial)).collect()
    }

    /// Returns the number of runs in this state.
    pub fn count(&self, so: impl Fn(&JobState) -> bool) -> usize {
        self.all.iter().filter(|job| so(&job.state)).count()
    }

    /// Returns the task of a run.
    fn task(&self, run: usize) -> Task {
        let planned = &self.all[run].planned;
        let (config, folder): (OsString, OsString) = ((&planned.config).into(), (&planned.folder).into());
        let word = |word: &str| OsString::from(word);
        let mut arguments = match self.field.kind {
            RunKind::Train if planned.folder.join("resolved.toml").exists() => {
                vec![word("train"), word("--resume"), folder]
            }
            RunKind::Train => vec![word("train"), config, word("--out"), folder],
            RunKind::Simulate => vec![word("simulate"), config, word("--out"), folder],
        };
        arguments.extend(planned.until.arguments());
        arguments.extend([word("--error-file"), planned.error_file().into()]);
        Task { run, arguments, log: planned.log.clone() }
    }
}

/// Removes files of an earlier attempt before a run begins or resumes.
fn cleared(kind: RunKind, planned: &PlannedRun) -> Result<()> {
    let old =
        ["record.jsonl", "resolved.toml", "log.jsonl"].into_iter().filter(|_| kind == RunKind::Simulate);
    let old = old.map(|name| planned.folder.join(name)).chain([planned.error_file()]);
    for path in old.filter(|path| path.exists()) {
        std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
    }
    planned.component.as_ref().map_or(Ok(()), |copy| copy.hand(&planned.folder))
}

/// Returns the state of a run that has ended.
fn ended(field: &Field, planned: &PlannedRun, exit: Exit, more: Option<PathBuf>, stopping: bool) -> JobState {
    let words = match exit {
        Exit::Over => match end(&planned.folder) {
            Some(End { normal: true, accuracy, .. }) => return JobState::Finished(accuracy.unwrap_or(0.0)),
            _ => "it left a record without an end".to_owned(),
        },
        Exit::Paused => return paused(field, planned).map_or(JobState::Paused, JobState::Finished),
        Exit::Killed(_) | Exit::Cut(_) if stopping => return JobState::Paused,
        // Killed by a signal, for example for lack of memory, it left no message.
        Exit::Killed(words) | Exit::Failed(words) => {
            Error::read(&planned.error_file()).map_or(words, |error| error.to_string())
        }
        Exit::Cut(words) => words,
    };
    // Its own log or, if that is empty, the output around it.
    let empty = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len()) == 0;
    let told = |more: PathBuf| [planned.log.clone(), more].into_iter().find(|path| !empty(path));
    match more.and_then(told) {
        Some(log) => JobState::Failed(format!("{words}; its log is {}", log.display())),
        None => JobState::Failed(words),
    }
}

/// Returns the accuracy of a run that is finished and complete. A run killed at its end is not complete.
/// Does not touch a run that another process is still saving.
fn over(field: &Field, planned: &PlannedRun) -> Option<f64> {
    let _held = run_dir::lock(&planned.folder).ok()?;
    if let Some(accuracy) = paused(field, planned) {
        return Some(accuracy);
    }
    let kind = field.kind;
    let end = end(&planned.folder).filter(|end| end.normal)?;
    if kind == RunKind::Train {
        let text = std::fs::read_to_string(planned.folder.join("resolved.toml")).ok()?;
        let config = TrainConfig::parse(&text, "resolved.toml").ok()?;
        resume::over(&planned.folder, &config).ok().flatten()?;
    }
    end.accuracy
}

/// Returns the accuracy of a run that has reached its pause.
fn paused(field: &Field, planned: &PlannedRun) -> Option<f64> {
    if planned.until == Until::default() {
        return None;
    }
    let history = follow::read(&planned.folder, &mut |_| {}).ok()?;
    let steps = planned.until.in_history(&field.means, &history)?;
    history.scores.iter().rev().find(|s| s.steps <= steps).map(|s| s.accuracy)
}

/// Bytes at a record's end that are searched for its last line.
const TAIL: u64 = 1 << 16;

/// Returns a record's end, if its last line is one.
fn end(run: &Path) -> Option<End> {
    let mut file = File::open(run.join("record.jsonl")).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let line = tail.strip_suffix(b"\n")?.rsplit(|b| *b == b'\n').next()?;
    match serde_json::from_slice(line).ok()? {
        Line::End(end) => Some(end),
        _ => None,
    }
}
