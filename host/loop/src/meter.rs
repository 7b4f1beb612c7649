//! Measures a run's compute and time, and limits both.

use std::sync::OnceLock;

use allot_allocation::{Ceilings, Compute, Cost, Request, Spent};
use allot_record::Seconds;
use serde::{Deserialize, Serialize};

/// Compute and time spent by a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Compute, without evaluation.
    pub compute: Compute,
    /// Seconds so far.
    pub seconds: Seconds,
    /// Rollouts sampled by evaluation so far.
    #[serde(default)]
    pub evaluated: u64,
}

/// Limits on compute and time. Independent of policies and models.
#[derive(Clone, Debug)]
pub struct Meter {
    ceilings: Ceilings,
    /// Maximum cost of the run's cheapest rollout, in operations.
    cheapest: OnceLock<f64>,
}

/// Amounts left under the limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Operations left, minus the cost of training on all buffered rollouts. `None` if not limited.
    flops: Option<f64>,
    /// Rollouts left, estimated from the seconds left and the rate. `None` without a limit or a rate.
    rollouts: Option<u64>,
    /// Maximum cost of the run's cheapest rollout, in operations.
    cheapest: f64,
}

impl Measured {
    /// Records that evaluation has spent this amount in total.
    pub fn evaluated(&mut self, spent: Option<Spent>) {
        self.evaluated = spent.map_or(self.evaluated, |spent| spent.run_rollouts);
    }

    /// Returns the seconds per rollout, averaged over all work of the steps so far. Before the first step,
    /// averages over evaluation.
    fn rate(&self, rollouts: u64) -> Option<f64> {
        let (seconds, rollouts) = match rollouts {
            0 => (self.seconds.evaluating, self.evaluated),
            _ => (self.seconds.of_steps(), rollouts),
        };
        (rollouts > 0 && seconds > 0.0).then(|| seconds / rollouts as f64)
    }
}

impl Meter {
    /// Returns a meter with these limits.
    pub fn new(ceilings: Ceilings) -> Self {
        Self { ceilings, cheapest: OnceLock::new() }
    }

    /// Returns whether operations are limited.
    pub fn counts_operations(&self) -> bool {
        self.ceilings.flops.is_some()
    }

    /// Returns the amounts left, if limited. `reserved` returns the cost of training on all buffered
    /// rollouts. `cheapest` returns the cost of the run's cheapest rollout; it is called at most once.
    pub fn left(
        &self,
        measured: &Measured,
        rollouts: u64,
        reserved: impl FnOnce() -> f64,
        cheapest: impl FnOnce() -> f64,
    ) -> Option<Left> {
        if self.ceilings.are_none() {
            return None;
        }
        let flops = self.ceilings.flops.map(|most| most - measured.compute.flops.total() - reserved());
        let seconds = self.ceilings.seconds.map(|most| (most - measured.seconds.of_steps()).max(0.0));
        let by_seconds = seconds.zip(measured.rate(rollouts)).map(|(left, rate)| match left / rate {
            n if left > 0.0 => n.max(1.0) as u64,
            _ => 0,
        });
        let cheapest = if flops.is_some() { *self.cheapest.get_or_init(cheapest) } else { 0.0 };
        Some(Left { flops, rollouts: by_seconds, cheapest })
    }

    /// Returns whether a limit is reached.
    pub fn reached(&self, measured: &Measured) -> bool {
        let flops = self.ceilings.flops.is_some_and(|most| measured.compute.flops.total() >= most);
        let seconds = self.ceilings.seconds.is_some_and(|most| measured.seconds.of_steps() >= most);
        flops || seconds
    }
}

impl Left {
    /// Returns the operations left, at least 0. `None` if they are not limited.
    pub fn flops(&self) -> Option<f64> {
        self.flops.map(|flops| flops.max(0.0))
    }

    /// Returns how many operations are missing for training on all buffered rollouts.
    pub fn short(&self) -> f64 {
        self.flops.map_or(0.0, |flops| (-flops).max(0.0))
    }

    /// Returns whether not even the cheapest rollout fits.
    pub fn is_nothing(&self) -> bool {
        self.flops.is_some_and(|flops| flops < self.cheapest) || self.rollouts == Some(0)
    }

    /// Returns how many rollouts fit, whichever of these prompts they belong to. At least 1 if the cheapest
    /// rollout of the run fits.
    pub fn in_any_case(&self, costs: impl Iterator<Item = Cost>) -> u64 {
        if self.is_nothing() {
            return 0;
        }
        let dearest = costs.map(|c| c.reading + c.rollout()).fold(0.0, f64::max);
        // The conversion to `u64` saturates.
        let by_flops = self.flops.map_or(u64::MAX, |flops| ((flops / dearest) as u64).max(1));
        by_flops.min(self.rollouts.unwrap_or(u64::MAX))
    }

    /// Returns how many rollouts of the requests fit, served in order.
    pub fn of_order(&self, order: &[Request], cost: impl Fn(&Request) -> Cost) -> u64 {
        let by_seconds = self.rollouts.unwrap_or(u64::MAX);
        let Some(mut left) = self.flops else { return by_seconds };
        let mut served = 0;
        for request in order {
            let cost = cost(request);
            left -= cost.reading;
            let wanted = u64::from(request.count);
            let fitting = (left / cost.rollout()).max(0.0) as u64;
            served += fitting.min(wanted);
            if fitting < wanted {
                break;
            }
            left -= f64::from(request.count) * cost.rollout();
        }
        served.min(by_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allot_allocation::PromptId;

    fn meter(flops: Option<f64>, seconds: Option<f64>) -> Meter {
        Meter::new(Ceilings { flops, seconds })
    }

    fn ask(prompt: u32, count: u32) -> Request {
        Request::new(PromptId(prompt), count)
    }

    /// The cost of reading a prompt equals its number. An answer costs 2, and training on it 8.
    fn cost(prompt: PromptId) -> Cost {
        Cost { reading: f64::from(prompt.0), answering: 2.0, learning: 8.0 }
    }

    fn of(request: &Request) -> Cost {
        cost(request.prompt)
    }

    #[test]
    fn without_a_ceiling_nothing_is_limited() {
        let measured = Measured::default();
        assert_eq!(
            meter(None, None).left(&measured, 5, || panic!("for nothing"), || panic!("for nothing")),
            None
        );
    }

    #[test]
    fn operations_are_granted_first_to_last_with_what_learning_from_them_takes() {
        let (meter, mut measured) = (meter(Some(100.0), None), Measured::default());
        measured.compute.flops.decode = 20.0;
        let left = meter.left(&measured, 0, || 10.0, || 11.0).expect("there is a ceiling");
        // 70 are left: prompt 5 costs 5 and 10 each, prompt 1 then 1 and 10 each.
        assert_eq!(left.of_order(&[ask(5, 4), ask(1, 9)], of), 6);
        assert_eq!(left.of_order(&[ask(5, 4), ask(20, 9)], of), 4, "prompt 20 can't be read and answered");
        assert_eq!(left.of_order(&[ask(5, u32::MAX)], of), 6);
        assert_eq!(left.of_order(&[ask(61, 1), ask(1, 1)], of), 0, "nobody is served before the first");
        assert_eq!(left.in_any_case([1, 20].into_iter().map(|p| cost(PromptId(p)))), 2);
        assert_eq!(left.in_any_case([90].into_iter().map(|p| cost(PromptId(p)))), 1, "others fit");
        let left =
            meter.left(&measured, 0, || 70.0, || panic!("it was told before")).expect("there is a ceiling");
        assert!(left.is_nothing());
        assert_eq!(left.in_any_case([1].into_iter().map(|p| cost(PromptId(p)))), 0);
    }

    #[test]
    fn seconds_are_granted_by_the_rate_so_far() {
        let (meter, mut measured) = (meter(None, Some(10.0)), Measured::default());
        let rollouts = |measured: &Measured, sampled| {
            meter.left(measured, sampled, || 0.0, || 0.0).map(|left| left.of_order(&[ask(1, u32::MAX)], of))
        };
        assert_eq!(rollouts(&measured, 0), Some(u64::MAX), "no rate is known");
        measured.seconds.evaluating = 2.0;
        measured.evaluated = 40;
        assert_eq!(rollouts(&measured, 0), Some(200));
        measured.seconds.sampling = 3.0;
        measured.seconds.updating = 1.0;
        assert_eq!(rollouts(&measured, 100), Some(150));
        measured.seconds.updating = 6.99;
        assert_eq!(rollouts(&measured, 10), Some(1), "while anything is left");
        measured.seconds.updating = 7.0;
        assert_eq!(rollouts(&measured, 10), Some(0));
    }
}
