//! The times of a run: `times.jsonl`, next to the record. They differ between two runs of the same config,
//! so they have a separate file. The record contains no times and does not describe the machine.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::appended::whole_lines;
use crate::{Appended, Kept, Mark, RecordError, Result};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Time {
    /// The machine on which the run starts or resumes.
    Machine(Machine),
    /// The time spent by the end of a step.
    Step {
        /// Steps finished. 0 after the evaluation at the start.
        steps: u32,
        /// Seconds spent so far.
        seconds: Seconds,
    },
}

/// A machine's properties that affect its speed. The machine's name is left out for privacy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub processor: String,
    /// Available threads.
    pub cores: usize,
    /// Operating system and architecture.
    pub system: String,
    /// The device that the model runs on.
    pub device: String,
}

impl Machine {
    /// Returns the properties of this machine. `device` is the model's device.
    pub fn here(device: &str) -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: named.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: device.to_owned(),
        }
    }
}

/// The activity of a run at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The policy is called, and its plan is checked and recorded.
    Deciding,
    /// The engine samples.
    Sampling,
    /// Answers are graded and recorded.
    Judging,
    /// The model is updated.
    Updating,
    /// The model is evaluated.
    Evaluating,
    /// A checkpoint or an output is written.
    Saving,
}

/// Seconds since the start of the run, by activity. Pauses between activities are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// In [`Phase::Deciding`].
    pub deciding: f64,
    /// In [`Phase::Sampling`].
    pub sampling: f64,
    /// In [`Phase::Judging`].
    pub judging: f64,
    /// In [`Phase::Updating`].
    pub updating: f64,
    /// In [`Phase::Evaluating`].
    pub evaluating: f64,
    /// In [`Phase::Saving`].
    pub saving: f64,
}

impl Seconds {
    /// Returns the seconds of the run's steps, which count against a limit in seconds. Includes the time
    /// for policies and graders, which also occupy the device. Evaluation and checkpoints are excluded.
    pub fn of_steps(&self) -> f64 {
        self.deciding + self.sampling + self.judging + self.updating
    }

    /// Adds seconds to a phase.
    pub fn add(&mut self, phase: Phase, seconds: f64) {
        *match phase {
            Phase::Deciding => &mut self.deciding,
            Phase::Sampling => &mut self.sampling,
            Phase::Judging => &mut self.judging,
            Phase::Updating => &mut self.updating,
            Phase::Evaluating => &mut self.evaluating,
            Phase::Saving => &mut self.saving,
        } += seconds;
    }
}

/// The times file of a run, being written.
#[derive(Debug)]
pub struct Times(Appended);

impl Times {
    /// Creates the file. Fails if it exists.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| RecordError::file("write", path, e))
    }

    /// Returns the file of a run resumed from a checkpoint. Removes the lines after the checkpoint's mark.
    pub fn resume(kept: Kept) -> Result<Self> {
        kept.cut().map(Self)
    }

    /// Appends a line.
    pub fn write(&mut self, time: &Time) -> Result<()> {
        let line = serde_json::to_vec(time).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.0.write_all(&line)
        });
        line.map_err(|e| RecordError::file("write", self.0.path(), e))
    }

    /// Returns the current length and hash, which a checkpoint stores for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the lines are on the disk.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| RecordError::file("write", self.0.path(), e))
    }

    /// Returns the complete lines in a run's folder, or an empty list if the run has no times.
    pub fn read(run: &Path) -> Result<Vec<Time>> {
        whole_lines(&run.join("times.jsonl"))?.collect()
    }
}
