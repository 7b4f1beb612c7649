//! The time limit of a check.

use std::time::{Duration, Instant};

use allot_sandbox::Fault;

/// The time limit of a check, or a part of it.
#[derive(Clone, Copy)]
pub struct Time {
    started: Instant,
    /// The whole duration.
    pub within: Duration,
    until: Instant,
    /// Whether the limit of a call was lowered to it. Reaching it then shows nothing about the component.
    limits_calls: bool,
}

impl Time {
    /// Returns the time limit of a check that starts now.
    pub fn new(within: Duration, limits_calls: bool) -> Self {
        let started = Instant::now();
        Self { started, within, until: started + within, limits_calls }
    }

    /// Returns this time without its last quarter.
    pub fn but_a_quarter(self) -> Self {
        Self { until: self.started + self.within * 3 / 4, ..self }
    }

    /// Returns whether the time is over.
    pub fn is_over(self) -> bool {
        Instant::now() > self.until
    }

    /// Returns whether a call ended because the check's time was over.
    pub fn ended(self, fault: &Fault) -> bool {
        self.limits_calls && matches!(fault, Fault::OutOfTime { .. })
    }
}

/// Returns whether a call ended because it reached a limit.
pub fn is_limit(fault: &Fault) -> bool {
    matches!(fault, Fault::OutOfFuel(_) | Fault::OutOfTime { .. } | Fault::OutOfMemory { .. })
}
