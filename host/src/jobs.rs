//! The runs of a comparison as processes, some at a time: each is this program with `train` or `simulate`,
//! so that one that fails or is killed takes no other with it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use allot_record::{End, Line};
use allot_report::follow::Follower;

use crate::comparison::{Comparison, Kind, Planned};
use crate::config::train::TrainConfig;
use crate::folder::{self, free};
use crate::meter::Measured;
use crate::resume;
use crate::trouble::{Result, Trouble};

/// How a run stands.
#[derive(Debug)]
pub enum State {
    /// Its turn has not come.
    Waiting,
    /// It is under way.
    Running(Child),
    /// It came to a normal end, with this accuracy.
    Finished(f64),
    /// It failed, for this reason.
    Failed(String),
    /// It was paused, and can go on.
    Paused,
}

/// A run of a comparison.
pub struct Job {
    /// The run.
    pub planned: Planned,
    /// How it stands.
    pub state: State,
    /// Share of its budget or its steps that is over, from 0 to 1.
    pub share: f64,
    /// Its last accuracy.
    pub accuracy: Option<f64>,
    follower: Option<Follower>,
}

/// All runs of a comparison.
pub struct Jobs<'c> {
    comparison: &'c Comparison,
    /// The runs, in the order in which their turns come.
    pub all: Vec<Job>,
}

impl<'c> Jobs<'c> {
    /// The runs as they were left.
    pub fn of(comparison: &'c Comparison) -> Self {
        let job = |planned: &Planned| {
            let done = over(comparison.kind, planned);
            let (share, accuracy) = (if done.is_some() { 1.0 } else { 0.0 }, done);
            let state = done.map_or(State::Waiting, State::Finished);
            Job { planned: planned.clone(), state, share, accuracy, follower: None }
        };
        Self { comparison, all: comparison.runs.iter().map(job).collect() }
    }

    /// Takes in what happened since: which runs ended, and how. Gives those that did. A run that a signal ends
    /// while all are `stopping` has paused: what was not saved is done again.
    pub fn poll(&mut self, stopping: bool) -> Result<Vec<usize>> {
        let mut ended = Vec::new();
        for (i, job) in self.all.iter_mut().enumerate() {
            let State::Running(child) = &mut job.state else { continue };
            let status =
                child.try_wait().map_err(|e| Trouble::new(format!("a run can't be waited for: {e}")))?;
            let Some(status) = status else { continue };
            job.state = match status.code() {
                Some(0) => match end(&job.planned.folder) {
                    Some(End { normal: true, accuracy, .. }) => State::Finished(accuracy.unwrap_or(0.0)),
                    _ => State::Failed("it left a record without an end".to_owned()),
                },
                Some(1) => State::Paused,
                None | Some(130) if stopping => State::Paused,
                _ => State::Failed(reason(&job.planned.log, &status.to_string())),
            };
            if let State::Finished(accuracy) = job.state {
                (job.share, job.accuracy) = (1.0, Some(accuracy));
            }
            job.follower = None;
            ended.push(i);
        }
        Ok(ended)
    }

    /// Starts runs whose turn has come, until so many are under way. Gives those it started.
    pub fn start(&mut self, at_once: usize) -> Result<Vec<usize>> {
        let mut started = Vec::new();
        let running = self.running();
        for i in 0..self.all.len() {
            if running + started.len() >= at_once {
                break;
            }
            // One that a process is still saving, of a comparison that was killed, waits for it.
            let waits = matches!(self.all[i].state, State::Waiting) && free(&self.all[i].planned.folder);
            if waits {
                self.all[i].state = State::Running(self.spawn(&self.all[i].planned)?);
                started.push(i);
            }
        }
        Ok(started)
    }

    /// Looks how far the runs under way have come.
    pub fn look(&mut self) {
        let (steps, budget) = (f64::from(self.comparison.steps), self.comparison.budget);
        for job in self.all.iter_mut().filter(|job| matches!(job.state, State::Running(_))) {
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
                let costs = step.costs;
                let mut measured = Measured { compute: costs.compute, ..Measured::default() };
                measured.seconds.sampling = costs.seconds.unwrap_or(0.0);
                job.share = (history.steps.len() as f64 / steps).max(budget.share(costs.spent, measured));
            }
        }
    }

    /// Asks the runs under way to pause: to finish their step, and save.
    pub fn pause(&mut self) {
        for job in &mut self.all {
            if let State::Running(child) = &mut job.state {
                drop(child.stdin.take());
            }
        }
    }

    /// What the arms are called.
    pub fn arms(&self) -> &[String] {
        &self.comparison.arms
    }

    /// What a run's arm is called.
    pub fn arm(&self, job: usize) -> &str {
        &self.comparison.arms[self.all[job].planned.arm]
    }

    /// The seeds.
    pub fn seeds(&self) -> &[u64] {
        &self.comparison.seeds
    }

    /// How many are under way.
    pub fn running(&self) -> usize {
        self.count(|state| matches!(state, State::Running(_)))
    }

    /// How many stand so.
    pub fn count(&self, so: impl Fn(&State) -> bool) -> usize {
        self.all.iter().filter(|job| so(&job.state)).count()
    }

    fn spawn(&self, planned: &Planned) -> Result<Child> {
        let program = std::env::current_exe().map_err(|e| Trouble::new(format!("no program to run: {e}")))?;
        let log = OpenOptions::new().create(true).write(true).truncate(true).open(&planned.log);
        let log = log.map_err(|e| Trouble::file("write", &planned.log, &e))?;
        let mut command = Command::new(program);
        match self.comparison.kind {
            Kind::Train if planned.folder.join("resolved.toml").exists() => {
                command.arg("train").arg("--resume").arg(&planned.folder).arg("--tied");
            }
            Kind::Train => {
                command.arg("train").arg(&planned.config).arg("--out").arg(&planned.folder).arg("--tied");
            }
            Kind::Simulate => {
                for name in ["record.jsonl", "resolved.toml"] {
                    let path = planned.folder.join(name);
                    if path.exists() {
                        std::fs::remove_file(&path).map_err(|e| Trouble::file("remove", &path, &e))?;
                    }
                }
                command.arg("simulate").arg(&planned.config).arg("--out").arg(&planned.folder).arg("--tied");
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|e| Trouble::new(format!("a run could not be started: {e}")))
    }
}

/// The accuracy of a run that is over and whole, as one that was killed at its very end is not. Of one that a
/// process is still saving nothing is touched.
fn over(kind: Kind, planned: &Planned) -> Option<f64> {
    let _held = folder::lock(&planned.folder).ok()?;
    let end = end(&planned.folder).filter(|end| end.normal)?;
    if kind == Kind::Train {
        let text = std::fs::read_to_string(planned.folder.join("resolved.toml")).ok()?;
        let config = TrainConfig::parse(&text, "resolved.toml").ok()?;
        resume::over(&planned.folder, &config).ok().flatten()?;
    }
    end.accuracy
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

/// Why a run failed: the last error that it told.
fn reason(log: &Path, status: &str) -> String {
    let text =
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    match text.lines().rev().find_map(|line| line.strip_prefix("error: ")) {
        Some(error) => error.to_owned(),
        // Killed by a signal, by lack of memory, say.
        None => format!("its process ended with {status}"),
    }
}
