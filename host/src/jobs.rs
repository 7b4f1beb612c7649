//! The runs of a comparison and how they stand: each is this program with `train` or `simulate`, started by
//! an executor. What a run came to is read from its folder, wherever it was made.

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

/// How a run stands.
#[derive(Debug)]
pub enum JobState {
    /// Its turn has not come.
    Waiting,
    /// Its executor has it, and has not begun it.
    Queued,
    /// It is under way.
    Running,
    /// It came to a normal end, with this accuracy.
    Finished(f64),
    /// It failed, for this reason.
    Failed(String),
    /// It was paused, and can go on.
    Paused,
}

/// Runs that are made side by side. Each has a row and a column in the table on the screen.
pub struct Field {
    /// What kind of runs they are.
    pub kind: RunKind,
    /// What each may spend.
    pub means: Means,
    /// What the rows are called.
    pub rows: Vec<String>,
    /// What the columns are called.
    pub columns: Vec<String>,
    /// The runs, in the order in which their turns come.
    pub runs: Vec<PlannedRun>,
}

impl Field {
    /// How many of its runs are over.
    pub fn over(&self) -> usize {
        self.runs.iter().filter(|run| over(self, run).is_some()).count()
    }
}

/// A run of a comparison.
pub struct Job {
    /// The run.
    pub planned: PlannedRun,
    /// How it stands.
    pub state: JobState,
    /// Share of its budget or its steps that is over, from 0 to 1.
    pub share: f64,
    /// Its last accuracy.
    pub accuracy: Option<f64>,
    follower: Option<Follower>,
}

/// All runs of a field.
pub struct Jobs<'f> {
    /// What they have in common.
    pub field: &'f Field,
    executor: Box<dyn Executor>,
    /// The runs, in the order in which their turns come.
    pub all: Vec<Job>,
}

/// What happened to the runs.
#[derive(Default)]
pub struct Happened {
    /// Those that ended.
    pub ended: Vec<usize>,
    /// What their executor has to say.
    pub words: Vec<String>,
}

impl<'f> Jobs<'f> {
    /// The runs as they were left; those that an earlier process left under way with this executor still are.
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

    /// Takes in what happened since: which runs ended, and how. A run that a signal ends while all are
    /// `stopping` has paused: what was not saved is done again.
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

    /// Starts runs whose turn has come, as many as their executor takes.
    pub fn start(&mut self) -> Result<()> {
        // One that a process is still saving, of a comparison that was killed, waits for it.
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

    /// Looks how far the runs under way have come.
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

    /// Asks the runs to pause: those under way to save what they have.
    pub fn pause(&mut self) -> Result<()> {
        self.executor.pause()
    }

    /// How many their executor has.
    pub fn with_executor(&self) -> usize {
        self.count(|state| matches!(state, JobState::Queued | JobState::Running))
    }

    /// Whether every run of an arm is over, and none of them failed.
    pub fn finished(&self, arm: usize) -> bool {
        let mut of = self.all.iter().filter(|job| job.planned.arm == arm);
        of.all(|job| matches!(job.state, JobState::Finished(_)))
    }

    /// How many stand so.
    pub fn count(&self, so: impl Fn(&JobState) -> bool) -> usize {
        self.all.iter().filter(|job| so(&job.state)).count()
    }

    /// What there is to do for a run.
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

/// Makes room for a run that begins or goes on.
fn cleared(kind: RunKind, planned: &PlannedRun) -> Result<()> {
    let old =
        ["record.jsonl", "resolved.toml", "log.jsonl"].into_iter().filter(|_| kind == RunKind::Simulate);
    let old = old.map(|name| planned.folder.join(name)).chain([planned.error_file()]);
    for path in old.filter(|path| path.exists()) {
        std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
    }
    planned.component.as_ref().map_or(Ok(()), |copy| copy.hand(&planned.folder))
}

/// How a run that ended stands.
fn ended(field: &Field, planned: &PlannedRun, exit: Exit, more: Option<PathBuf>, stopping: bool) -> JobState {
    let words = match exit {
        Exit::Over => match end(&planned.folder) {
            Some(End { normal: true, accuracy, .. }) => return JobState::Finished(accuracy.unwrap_or(0.0)),
            _ => "it left a record without an end".to_owned(),
        },
        Exit::Paused => return paused(field, planned).map_or(JobState::Paused, JobState::Finished),
        Exit::Killed(_) | Exit::Cut(_) if stopping => return JobState::Paused,
        // Killed by a signal, by lack of memory, say, it told nothing.
        Exit::Killed(words) | Exit::Failed(words) => {
            Error::read(&planned.error_file()).map_or(words, |error| error.to_string())
        }
        Exit::Cut(words) => words,
    };
    // Its own log, or where that has nothing, what was said around it.
    let empty = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len()) == 0;
    let told = |more: PathBuf| [planned.log.clone(), more].into_iter().find(|path| !empty(path));
    match more.and_then(told) {
        Some(log) => JobState::Failed(format!("{words}; its log is {}", log.display())),
        None => JobState::Failed(words),
    }
}

/// The accuracy of a run that is over and whole, as one that was killed at its very end is not. Of one that a
/// process is still saving nothing is touched.
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

/// The accuracy of a run that came to where it was to pause.
fn paused(field: &Field, planned: &PlannedRun) -> Option<f64> {
    if planned.until == Until::default() {
        return None;
    }
    let history = follow::read(&planned.folder, &mut |_| {}).ok()?;
    let steps = planned.until.in_history(&field.means, &history)?;
    history.scores.iter().rev().find(|s| s.steps <= steps).map(|s| s.accuracy)
}

/// How much of a record's tail its last line is looked for in.
const TAIL: u64 = 1 << 16;

/// A record's end, if its last line is one.
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
