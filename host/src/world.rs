//! The parts of a run: its loop, and what executes the loop's requests.

use std::collections::HashMap;
use std::time::Instant;

use allot_allocation::RolloutId;
use allot_engine::{Engine, Interrupt, Sample};
use allot_judges::Verdict;
use allot_loop::Loop;
use allot_record::{Phase, Record};
use allot_sandbox::LogLine;
use serde::{Deserialize, Serialize};

/// The parts of a run.
pub struct World<E: Engine, R, P> {
    /// The step loop.
    pub run: Loop,
    /// The engine, which samples and trains.
    pub engine: E,
    /// The reward.
    pub reward: R,
    /// The policy.
    pub policy: P,
    /// The buffered rollouts in the engine's form.
    pub samples: HashMap<RolloutId, Sample<E::Answer>>,
    /// Rollouts of a round that was interrupted.
    pub paid: Vec<Paid<E::Answer>>,
    /// The record of every call and step.
    pub record: Record,
    /// Receives the policy's log lines.
    pub log: fn(&LogLine),
    /// Whether the run was asked to stop.
    pub interrupt: Interrupt,
    /// Measures the phases of a step.
    pub clock: Clock,
}

/// A rollout that was sampled in an interrupted round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paid<A> {
    /// Its index in the grant.
    pub place: usize,
    /// The rollout.
    pub sample: Sample<A>,
    /// Its verdict, if it was already there.
    pub verdict: Option<Verdict>,
}

/// The start of the current phase.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl<E: Engine, R, P> World<E, R, P> {
    /// Returns the world of a run without buffered rollouts, without a record and without a log.
    pub fn new(run: Loop, engine: E, reward: R, policy: P) -> Self {
        Self {
            run,
            engine,
            reward,
            policy,
            samples: HashMap::new(),
            paid: Vec::new(),
            record: Record::none(),
            log: |_| {},
            interrupt: Interrupt::new(),
            clock: Clock::new(),
        }
    }

    /// Ends a phase and begins the next one.
    pub fn lap(&mut self, phase: Phase) {
        let seconds = self.clock.0.elapsed().as_secs_f64();
        self.run.state.measured.seconds.add(phase, seconds);
        self.clock.start();
    }
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Restarts the clock.
    pub fn start(&mut self) {
        self.0 = Instant::now();
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
