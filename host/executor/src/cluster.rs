//! Runs as jobs of a cluster with a queue: the part that is the same for each kind of queue. A task's
//! script writes its exit code into a file. The queue is therefore polled rarely: to see whether a run has
//! begun, and what happened to a run that left no exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allot_base::{Error, Result};

use crate::executor::{Executor, Exit, News, Task};
use crate::submission::{self, Submission};

/// A cluster's queue.
pub trait Queue {
    /// The queue's name on the command line.
    const KEY: &'static str;
    /// The queue's name in messages.
    const NAME: &'static str;

    /// Returns how many more runs the queue accepts now, if it has `with_it` runs.
    fn room(&self, with_it: usize) -> usize;

    /// Submits runs.
    fn submit(&mut self, submission: &Submission) -> std::result::Result<(), Refusal>;

    /// Returns the state of each task. Tasks that are missing have left the queue.
    fn standing(&mut self, submission: &Submission) -> Result<BTreeMap<usize, Standing>>;

    /// Asks running tasks to stop and removes the others from the queue. Does not wait.
    fn cancel(&mut self, submission: &Submission) -> Result<()>;
}

/// A task's state in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits; the reason is given if the user should know it.
    Queued(Option<String>),
    /// It is running.
    Running,
    /// It ended by itself, with or without success.
    Ended,
    /// The cluster ended it, for this reason.
    Cut(String),
}

/// Why a submission failed.
pub enum Refusal {
    /// The cluster rejected it.
    No(Error),
    /// It is unknown whether the cluster has it.
    Unknown(Error),
}

/// A cluster as an executor.
pub struct Cluster<Q> {
    folder: PathBuf,
    comparison: PathBuf,
    queue: Q,
    out: Vec<Out>,
    /// When the queue is polled next, and the interval after that.
    next: Instant,
    rest: Duration,
    /// When the tasks' files were last read.
    looked: Option<Instant>,
    /// Since when the queue has not answered.
    silent: Option<Instant>,
    /// Reasons for waiting that were already reported.
    told: BTreeSet<String>,
    stopping: bool,
}

/// A submission with unfinished tasks.
struct Out {
    submission: Submission,
    left: BTreeMap<usize, Seen>,
}

/// What is known about a task.
#[derive(Default)]
struct Seen {
    began: bool,
    /// The task's last state in the queue.
    word: Option<Standing>,
    /// When its end was noticed, by its exit code or by the queue.
    over: Option<Instant>,
}

impl Seen {
    /// Returns whether it has ended, or must not begin.
    fn ends(&self, code: Option<i32>, stopping: bool) -> bool {
        match &self.word {
            _ if code.is_some() => true,
            Some(Standing::Ended | Standing::Cut(_)) => true,
            // A task that had not begun when everything was stopped has nothing to save.
            Some(Standing::Queued(_)) => stopping && !self.began,
            _ => false,
        }
    }

    /// Returns how the task ended, once its exit code and final state are known, or one of them is late.
    fn exit(&self, code: Option<i32>, stopping: bool, unseen: impl FnOnce() -> String) -> Option<Exit> {
        let late = self.over?.elapsed() > HALF;
        Some(match (code, &self.word) {
            (Some(0), _) => Exit::Over,
            (Some(1), Some(Standing::Cut(why))) => Exit::Cut(format!("{why}; its progress is saved")),
            (Some(_), Some(Standing::Cut(why))) => Exit::Cut(why.clone()),
            (Some(code), word) if late || *word == Some(Standing::Ended) => {
                // A shell's exit code for a signal.
                let signal = code.checked_sub(128).filter(|signal| *signal > 0);
                let by = signal.map_or(format!("with exit status: {code}"), |s| format!("by signal {s}"));
                let code = Some(code).filter(|_| signal.is_none());
                Exit::of(code, format!("its process ended {by}"))
            }
            (None, Some(Standing::Cut(why))) if late || (stopping && !self.began) => Exit::Cut(why.clone()),
            (None, Some(Standing::Queued(_))) if stopping => {
                Exit::Cut("it was cancelled before it began".to_owned())
            }
            (None, Some(Standing::Ended)) if late => Exit::Cut(unseen()),
            _ => return None,
        })
    }
}

/// The interval of reading the tasks' files, which are on a shared file system.
const GLANCE: Duration = Duration::from_millis(300);

/// Intervals of polling a queue, whose controller is shared, too.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(20);

/// How long to wait for the second of an exit code and a final queue state.
const HALF: Duration = Duration::from_secs(10);

/// How long a queue may fail to answer.
const PATIENCE: Duration = Duration::from_mins(10);

impl<Q: Queue> Cluster<Q> {
    /// Returns an executor for runs in `folder` of this comparison.
    pub fn new((folder, comparison): (&Path, &Path), queue: Q) -> Self {
        Self {
            folder: folder.to_owned(),
            comparison: comparison.to_owned(),
            queue,
            out: Vec::new(),
            next: Instant::now(),
            rest: SHORTEST,
            looked: None,
            silent: None,
            told: BTreeSet::new(),
            stopping: false,
        }
    }

    /// Polls the queue about all unfinished tasks, if it is time to. A queue that fails is polled again.
    fn asked(&mut self, news: &mut Vec<News>) -> Result<Option<Vec<BTreeMap<usize, Standing>>>> {
        if Instant::now() < self.next || self.out.is_empty() {
            return Ok(None);
        }
        let answers: Result<Vec<_>> =
            self.out.iter().map(|out| self.queue.standing(&out.submission)).collect();
        self.rest = (self.rest * 3 / 2).min(LONGEST);
        self.next = Instant::now() + self.rest;
        match answers {
            Ok(answers) => {
                if self.silent.take().is_some() {
                    news.push(News::Word(format!("{} responds again", Q::NAME)));
                }
                Ok(Some(answers))
            }
            Err(error) => match self.silent {
                Some(since) if since.elapsed() > PATIENCE => Err(error.hint(self.go_on())),
                Some(_) => Ok(None),
                None => {
                    self.silent = Some(Instant::now());
                    news.push(News::Word(format!("{}; retrying", error.what)));
                    Ok(None)
                }
            },
        }
    }

    fn go_on(&self) -> String {
        let (folder, key) = (self.comparison.display(), Q::KEY);
        let again = format!("allot compare --resume {folder} --executor {key}");
        format!("run this to reattach to the runs, which continue without this command: {again}")
    }
}

impl<Q: Queue> Executor for Cluster<Q> {
    fn adopt(&mut self) -> Result<Vec<usize>> {
        let mut runs = Vec::new();
        for submission in submission::open(&self.folder, Q::KEY)? {
            let standing = self.queue.standing(&submission)?;
            // Tasks still queued there will end as soon as they begin.
            let stopped = submission.folder.join("stop").exists();
            let alive = |task: &usize| match standing.get(task) {
                Some(Standing::Running) => true,
                Some(Standing::Queued(_)) => !stopped,
                _ => false,
            };
            let tasks = (0..submission.runs.len()).filter(|task| submission.exit(*task).is_none());
            let left: BTreeMap<usize, Seen> =
                tasks.filter(alive).map(|task| (task, Seen::default())).collect();
            if left.is_empty() {
                submission.close()?;
                continue;
            }
            runs.extend(left.keys().map(|task| submission.runs[*task]));
            self.out.push(Out { submission, left });
        }
        Ok(runs)
    }

    fn room(&self) -> usize {
        self.queue.room(self.out.iter().map(|out| out.left.len()).sum())
    }

    fn start(&mut self, tasks: &[Task]) -> Result<()> {
        let submission = Submission::new(&self.folder, Q::KEY, tasks)?;
        match self.queue.submit(&submission) {
            Ok(()) => {}
            Err(Refusal::No(error)) => {
                submission.close()?;
                return Err(error);
            }
            Err(Refusal::Unknown(error)) => {
                return Err(error.hint(self.go_on()));
            }
        }
        let left = (0..tasks.len()).map(|task| (task, Seen::default())).collect();
        self.out.push(Out { submission, left });
        (self.next, self.rest) = (Instant::now(), SHORTEST);
        Ok(())
    }

    fn poll(&mut self) -> Result<Vec<News>> {
        let mut news = Vec::new();
        if self.looked.is_some_and(|at| at.elapsed() < GLANCE) {
            return Ok(news);
        }
        self.looked = Some(Instant::now());
        let answers = self.asked(&mut news)?;
        let mut prompt = false;
        for (i, out) in self.out.iter_mut().enumerate() {
            let mut over = Vec::new();
            for (task, seen) in &mut out.left {
                let (run, output) = (out.submission.runs[*task], out.submission.output(*task));
                if let Some(answers) = &answers {
                    seen.word = Some(answers[i].get(task).cloned().unwrap_or(Standing::Ended));
                }
                if let Some(Standing::Queued(Some(why))) = &seen.word
                    && self.told.insert(why.clone())
                {
                    news.push(News::Word(format!("{} keeps runs waiting: {why}", Q::NAME)));
                }
                let code = out.submission.exit(*task);
                if !seen.began && (code.is_some() || seen.word == Some(Standing::Running)) {
                    (seen.began, prompt) = (true, true);
                    news.push(News::Began(run));
                }
                if seen.over.is_none() && seen.ends(code, self.stopping) {
                    (seen.over, prompt) = (Some(Instant::now()), true);
                }
                let unseen = || {
                    let (name, folder) = (Q::NAME, out.submission.folder.display());
                    let hint =
                        "make sure that all nodes see that folder and this program under the same paths";
                    format!("it left {name} without an exit code in `{folder}`: {hint}")
                };
                if let Some(exit) = seen.exit(code, self.stopping, unseen) {
                    news.push(News::Ended(run, exit, Some(output)));
                    over.push(*task);
                }
            }
            out.left.retain(|task, _| !over.contains(task));
        }
        if prompt {
            (self.next, self.rest) = (self.next.min(Instant::now() + SHORTEST), SHORTEST);
        }
        for out in self.out.extract_if(.., |out| out.left.is_empty()) {
            out.submission.close()?;
        }
        Ok(news)
    }

    fn pause(&mut self) -> Result<()> {
        if self.stopping {
            return Ok(());
        }
        self.stopping = true;
        for out in &mut self.out {
            out.submission.stop()?;
            self.queue.cancel(&out.submission)?;
            // Earlier states in the queue no longer count.
            out.left.values_mut().for_each(|seen| seen.word = None);
        }
        (self.next, self.rest) = (Instant::now(), SHORTEST);
        Ok(())
    }
}
