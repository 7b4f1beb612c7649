//! The time that a check has.

use std::time::{Duration, Instant};

use allot_sandbox::Fault;

/// The time that a check has, or a part of it.
#[derive(Clone, Copy)]
pub struct Time {
    started: Instant,
    /// All of it.
    pub within: Duration,
    until: Instant,
    /// Whether the limit of a call was lowered to it. A call that meets this limit shows nothing about the component.
    limits_calls: bool,
}

impl Time {
    /// The time of a check that starts now.
    pub fn new(within: Duration, limits_calls: bool) -> Self {
        let started = Instant::now();
        Self { started, within, until: started + within, limits_calls }
    }

    /// This time without its last quarter.
    pub fn but_a_quarter(self) -> Self {
        Self { until: self.started + self.within * 3 / 4, ..self }
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        Instant::now() > self.until
    }

    /// Whether a call ended because the check's time was over.
    pub fn ended(self, fault: &Fault) -> bool {
        self.limits_calls && matches!(fault, Fault::OutOfTime { .. })
    }
}

/// Whether a call ended because it used up what it may use.
pub fn is_limit(fault: &Fault) -> bool {
    matches!(fault, Fault::OutOfFuel(_) | Fault::OutOfTime { .. } | Fault::OutOfMemory { .. })
}
