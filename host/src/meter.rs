//! What a run computes and how long it takes, measured as it goes; and the ceilings on both.

use std::time::Instant;

use allot_allocation::{Books, Ceilings, Compute};
use allot_record::{Phase, Seconds};
use serde::{Deserialize, Serialize};

/// A run's meter. It does not know what a policy or a model is.
#[derive(Clone, Debug)]
pub struct Meter {
    /// What was computed, evaluation left out.
    pub compute: Compute,
    /// Seconds so far.
    pub seconds: Seconds,
    ceilings: Ceilings,
    /// When the phase at hand began.
    since: Instant,
}

/// What a checkpoint keeps of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was computed.
    pub compute: Compute,
    /// Seconds so far.
    pub seconds: Seconds,
}

impl Meter {
    /// A meter at zero.
    pub fn new(ceilings: Ceilings) -> Self {
        Self { compute: Compute::default(), seconds: Seconds::default(), ceilings, since: Instant::now() }
    }

    /// What a checkpoint keeps.
    pub fn measured(&self) -> Measured {
        Measured { compute: self.compute, seconds: self.seconds }
    }

    /// Goes on from a checkpoint. The time between is nobody's.
    pub fn restore(&mut self, measured: Measured) {
        self.compute = measured.compute;
        self.seconds = measured.seconds;
        self.since = Instant::now();
    }

    /// Time counts from here.
    pub fn start(&mut self) {
        self.since = Instant::now();
    }

    /// A phase has ended, and the next one begins.
    pub fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        self.seconds.add(phase, now.duration_since(self.since).as_secs_f64());
        self.since = now;
    }

    /// Closes the books where a ceiling is reached.
    pub fn close(&self, books: &mut Books) {
        let flops = self.ceilings.flops.is_some_and(|most| self.compute.flops.total() >= most);
        let seconds = self.ceilings.seconds.is_some_and(|most| self.seconds.of_steps() >= most);
        if flops || seconds {
            books.close();
        }
    }
}
