//! All that a run is made of: its loop, and whoever does what the loop asks for.

use std::collections::HashMap;
use std::time::Instant;

use allot_allocation::RolloutId;
use allot_engine::{Engine, Interrupt, Sample};
use allot_judges::Verdict;
use allot_loop::Loop;
use allot_record::{Phase, Record};
use allot_sandbox::LogLine;
use serde::{Deserialize, Serialize};

/// Everything that lives on from step to step.
pub struct World<E: Engine, R, P> {
    /// What comes next.
    pub run: Loop,
    /// What samples and learns.
    pub engine: E,
    /// What judges.
    pub reward: R,
    /// Who decides.
    pub policy: P,
    /// The buffered rollouts, as the engine knows them.
    pub samples: HashMap<RolloutId, Sample<E::Answer>>,
    /// What came of a round that was interrupted.
    pub paid: Vec<Paid<E::Answer>>,
    /// Where every call and step is written.
    pub record: Record,
    /// Where the policy's own words go.
    pub log: fn(&LogLine),
    /// Whether somebody wants the run to stop.
    pub interrupt: Interrupt,
    /// Measures how long things take.
    pub clock: Clock,
}

/// A rollout that was sampled in a round that did not come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paid<A> {
    /// Its place in what was granted.
    pub place: usize,
    /// The rollout.
    pub sample: Sample<A>,
    /// Its verdict, if that was there.
    pub verdict: Option<Verdict>,
}

/// When the phase at hand began.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl<E: Engine, R, P> World<E, R, P> {
    /// A phase has ended, and the next one begins.
    pub fn lap(&mut self, phase: Phase) {
        let seconds = self.clock.0.elapsed().as_secs_f64();
        self.run.state.measured.seconds.add(phase, seconds);
        self.clock.start();
    }
}

impl Clock {
    /// Time counts from here.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Time counts from here again.
    pub fn start(&mut self) {
        self.0 = Instant::now();
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
