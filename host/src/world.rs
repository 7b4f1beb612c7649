//! All that a run is made of: its loop, and what carries out the loop's requests.

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
    /// The step loop.
    pub run: Loop,
    /// The engine, which samples and learns.
    pub engine: E,
    /// The reward.
    pub reward: R,
    /// The policy.
    pub policy: P,
    /// The buffered rollouts, as the engine knows them.
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
    /// The world of a run without buffered rollouts. It keeps no record and no log.
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
