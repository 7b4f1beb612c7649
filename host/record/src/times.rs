//! How long a run took, beside its record: `times.jsonl`. Two runs of one config differ in it, which is
//! why it is a file of its own; it is the only one that says anything of a machine or a clock.

use std::io::Write as _;
use std::path::Path;

use allot_allocation::shown;
use serde::{Deserialize, Serialize};

use crate::{Appended, Kept, Mark, RecordError, Result};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Time {
    /// Where the run goes on from here.
    Machine(Machine),
    /// What was done by the end of a step.
    Step {
        /// Steps finished; 0 after the score at the start.
        steps: u32,
        /// Seconds so far.
        seconds: Seconds,
    },
}

/// A machine, as far as its speed goes. Its name is left out for privacy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as it calls itself.
    pub processor: String,
    /// Threads that the system offers.
    pub cores: usize,
    /// System and architecture.
    pub system: String,
    /// What the model runs on.
    pub device: String,
}

impl Machine {
    /// This machine, with the model on this device.
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

/// What a run does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The policy is asked, and its plan checked and written down.
    Deciding,
    /// The engine samples.
    Sampling,
    /// Answers are judged, and written down.
    Judging,
    /// The model is updated.
    Updating,
    /// The score is taken.
    Evaluating,
    /// A checkpoint or an output is written.
    Saving,
}

/// Seconds by what was done in them, from the start of the run; the pauses between are in none.
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
    /// Those of the run's steps, which a budget of seconds counts: the device is the run's while a policy
    /// decides and while a judge reads, too. Evaluation and checkpoints are apart.
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

/// The file, as it is written.
#[derive(Debug)]
pub struct Times(Appended);

impl Times {
    /// A new file. Fails where there is one already.
    pub fn create(path: &Path) -> Result<Self> {
        Appended::create(path).map(Self).map_err(|e| RecordError::file("write", path, e))
    }

    /// The file of a run that goes on from a checkpoint: lines after its mark are cut off.
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

    /// How far it has come: what a checkpoint keeps for [`Kept::open`].
    pub fn mark(&self) -> Mark {
        self.0.mark()
    }

    /// Waits until the lines are on the disk.
    pub fn sync(&self) -> Result<()> {
        self.0.sync().map_err(|e| RecordError::file("write", self.0.path(), e))
    }

    /// The lines of a run's folder, as far as they are whole; none where the run kept no times.
    pub fn read(run: &Path) -> Result<Vec<Time>> {
        let path = run.join("times.jsonl");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(RecordError::file("read", &path, e)),
        };
        let whole = text.split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n"));
        let one = |(i, line): (usize, &[u8])| {
            serde_json::from_slice(line).map_err(|e| RecordError::Line {
                path: path.clone(),
                number: i + 1,
                reason: shown::line(&e.to_string(), shown::LINE),
            })
        };
        whole.enumerate().map(one).collect()
    }
}
