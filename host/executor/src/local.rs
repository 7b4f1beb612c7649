//! Runs as concurrent processes of this machine. Each is this program, so that a failing or killed run does
//! not affect others. Their standard input is tied to this process: when this process ends, they save and
//! stop.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};

use allot_base::{Error, Result};

use crate::executor::{Executor, Exit, News, Task};

/// Runs as processes of this machine.
pub struct Local {
    at_once: usize,
    children: Vec<(usize, Child)>,
    /// Runs that began since the last `poll`.
    began: Vec<usize>,
}

impl Local {
    /// Returns an executor with at most `at_once` concurrent runs.
    pub fn new(at_once: usize) -> Self {
        Self { at_once, children: Vec::new(), began: Vec::new() }
    }
}

impl Executor for Local {
    /// Returns nothing: runs of a process that has ended save and stop.
    fn adopt(&mut self) -> Result<Vec<usize>> {
        Ok(Vec::new())
    }

    fn room(&self) -> usize {
        self.at_once.saturating_sub(self.children.len())
    }

    fn start(&mut self, tasks: &[Task]) -> Result<()> {
        for task in tasks {
            self.children.push((task.run, spawn(task)?));
            self.began.push(task.run);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Vec<News>> {
        let mut news: Vec<News> = self.began.drain(..).map(News::Began).collect();
        let mut left = Vec::new();
        for (run, mut child) in self.children.drain(..) {
            match child.try_wait() {
                Ok(None) => left.push((run, child)),
                Ok(Some(status)) => {
                    let words = format!("its process ended with {status}");
                    news.push(News::Ended(run, Exit::of(status.code(), words), None));
                }
                Err(e) => return Err(Error::new(format!("a run can't be waited for: {e}"))),
            }
        }
        self.children = left;
        Ok(news)
    }

    fn pause(&mut self) -> Result<()> {
        for (_, child) in &mut self.children {
            drop(child.stdin.take());
        }
        Ok(())
    }
}

fn spawn(task: &Task) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| Error::new(format!("no program to run: {e}")))?;
    let log = OpenOptions::new().create(true).write(true).truncate(true).open(&task.log);
    let log = log.map_err(|e| Error::file("write", &task.log, &e))?;
    let mut command = Command::new(program);
    command.args(&task.arguments).arg("--tied");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|e| Error::new(format!("a run could not be started: {e}")))
}
