//! A second copy of the model that learns on its own thread while the first copy samples.
//!
//! Sampling and checkpoints use the first copy, which keeps the weights of the last finished
//! `update` call. If the program stops, an update that was begun is made again from the start.

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use allot_allocation::Compute;

use crate::core::{Core, Sequence};
use crate::model::ModelError;
use crate::update::{TrainingSample, UpdateConfig, UpdateContext, update};
use crate::{EngineError, Interrupt, OptimizerConfig, Report, SamplingMask};

/// The interval at which an interrupt is polled while waiting for an update.
const LOOK: Duration = Duration::from_millis(50);

/// A training row of a rollout to learn from, with owned data.
#[derive(Clone, Debug)]
pub(crate) struct Lesson {
    /// Tokens of prompt and answer.
    pub(crate) tokens: Vec<u32>,
    /// Number of prompt tokens.
    pub(crate) prompt: usize,
    /// Like [`Sequence::observed`].
    pub(crate) observed: Vec<Range<usize>>,
    /// Log-probabilities when it was sampled.
    pub(crate) sampled: Vec<f32>,
    /// The tokens that each token was drawn from; empty unless sampling keeps them.
    pub(crate) mask: SamplingMask,
    /// The temperature that it was sampled at.
    pub(crate) temperature: f32,
    /// Whether the weights have changed since.
    pub(crate) stale: bool,
    /// Whether it reached the length limit.
    pub(crate) truncated: bool,
    /// Its advantage.
    pub(crate) advantage: f32,
    /// The advantage of each of its tokens; empty if all have its own.
    pub(crate) by_token: Vec<f32>,
    /// Like [`TrainingSample::further`].
    pub(crate) further: bool,
    /// Like [`TrainingSample::whole`].
    pub(crate) whole: usize,
}

/// An update, with all its inputs.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) lessons: Vec<Lesson>,
    pub(crate) update: UpdateConfig,
    pub(crate) optimizer: OptimizerConfig,
    /// The length limit of an answer.
    pub(crate) longest: usize,
    /// Fraction of the run completed.
    pub(crate) progress: f64,
    /// Like [`UpdateContext::foreign`].
    pub(crate) foreign: Option<f64>,
}

/// The result of an update.
type Made = Result<(Report, Compute), EngineError>;

impl Lesson {
    fn sample(&self) -> TrainingSample<'_> {
        TrainingSample {
            sequence: Sequence {
                tokens: &self.tokens,
                prompt: self.prompt,
                observed: &self.observed,
                mask: Some(&self.mask).filter(|mask| !mask.is_empty()),
            },
            sampled: &self.sampled,
            temperature: self.temperature,
            stale: self.stale,
            truncated: self.truncated,
            advantage: self.advantage,
            by_token: &self.by_token,
            further: self.further,
            whole: self.whole,
        }
    }
}

impl Work {
    /// Makes the update.
    pub(crate) fn make(&self, core: &mut dyn Core, interrupt: &Interrupt) -> Made {
        let lessons: Vec<TrainingSample<'_>> = self.lessons.iter().map(Lesson::sample).collect();
        let context = UpdateContext {
            update: &self.update,
            optimizer: &self.optimizer,
            longest: self.longest,
            progress: self.progress,
            foreign: self.foreign,
            interrupt,
        };
        update(core, &lessons, context)
    }
}

/// The copy, idle or on its thread.
pub(crate) enum Learner {
    /// No update is running.
    Idle(Box<dyn Core + Send>),
    /// An update is running.
    Busy(Receiver<(Box<dyn Core + Send>, Made)>),
    /// The copy was lost in an update that failed, and the run with it.
    Lost,
}

impl Learner {
    /// Returns a learner with a copy of a core, if its kind can be copied.
    pub(crate) fn of(core: &dyn Core) -> Result<Option<Self>, ModelError> {
        Ok(core.fork()?.map(Self::Idle))
    }

    /// Starts an update unless one is running.
    pub(crate) fn begin(&mut self, work: Work, interrupt: &Interrupt) -> Result<(), ModelError> {
        let Self::Idle(mut core) = std::mem::replace(self, Self::Lost) else { return Ok(()) };
        let (tell, told) = mpsc::sync_channel(1);
        let interrupt = interrupt.clone();
        let spawned = thread::Builder::new().name("learner".to_owned()).spawn(move || {
            let made = work.make(core.as_mut(), &interrupt);
            // The receiver is gone if the run has ended.
            let _ = tell.send((core, made));
        });
        spawned.map_err(|e| ModelError::Threads(e.to_string()))?;
        *self = Self::Busy(told);
        Ok(())
    }

    /// Returns the result of the running update, or makes one now. Copies the new weights to
    /// `core`. Does not wait for the update after an interrupt.
    pub(crate) fn finish(&mut self, core: &mut dyn Core, work: &Work, interrupt: &Interrupt) -> Made {
        let (mut copy, begun) = match std::mem::replace(self, Self::Lost) {
            Self::Idle(copy) => (copy, None),
            Self::Busy(told) => {
                let Some((copy, made)) = wait(&told, interrupt) else {
                    *self = Self::Busy(told);
                    return Err(EngineError::Interrupted);
                };
                (copy, Some(made))
            }
            Self::Lost => return Err(ModelError::Threads("the one that learns is gone".to_owned()).into()),
        };
        let made = match begun {
            // The update was interrupted before it changed anything, but the run goes on.
            None | Some(Err(EngineError::Interrupted)) => work.make(copy.as_mut(), interrupt),
            Some(made) => made,
        };
        if made.is_ok()
            && let Some(training) = copy.training()
        {
            core.follow(training);
        }
        *self = Self::Idle(copy);
        made
    }
}

/// Waits for a thread's message; returns `None` after an interrupt.
fn wait<T>(told: &Receiver<T>, interrupt: &Interrupt) -> Option<T> {
    loop {
        match told.recv_timeout(LOOK) {
            Ok(done) => return Some(done),
            Err(RecvTimeoutError::Timeout) if interrupt.is_asked() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the thread that learns has panicked"),
        }
    }
}
