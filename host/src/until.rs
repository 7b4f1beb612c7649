//! Where a run of a tuning pauses: after a share of its budget or steps, or at an accuracy. It pauses
//! between two steps and is saved there. A resumed run continues as if it had not paused.

use std::ffi::OsString;

use allot_config::BudgetConfig;
use allot_report::Costs;
use allot_report::history::History;
use clap::Args;

/// Where a run pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args)]
pub struct Until {
    /// Pause once this share of the budget is spent, for processes that start this one
    #[arg(long = "pause-at-share", hide = true)]
    pub share: Option<f64>,
    /// Pause once an evaluation comes to this accuracy, for processes that start this one
    #[arg(long = "pause-at-accuracy", hide = true)]
    pub accuracy: Option<f64>,
}

/// The budget and the steps of a run.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Its budget.
    pub budget: BudgetConfig,
    /// Its steps.
    pub steps: u32,
}

impl Means {
    /// Returns the spent share after this many steps: the largest one over all limits.
    pub fn share(&self, steps: u32, costs: &Costs) -> f64 {
        let done = f64::from(steps) / f64::from(self.steps.max(1));
        let (flops, seconds) = (costs.compute.flops.total(), costs.seconds.unwrap_or(0.0));
        done.max(self.budget.share(costs.spent, flops, seconds))
    }
}

impl Until {
    /// Returns whether a run pauses after a step, at this cost and with this accuracy, if it was evaluated.
    pub fn is_met(&self, means: &Means, steps: u32, costs: &Costs, accuracy: Option<f64>) -> bool {
        let spent = self.share.is_some_and(|share| means.share(steps, costs) >= share);
        let there = self.accuracy.zip(accuracy).is_some_and(|(target, accuracy)| accuracy >= target);
        spent || there
    }

    /// Returns the number of steps after which a run paused, or would have paused, if it got there.
    pub fn in_history(&self, means: &Means, history: &History) -> Option<u32> {
        let met = |(step, n): (&allot_report::history::Step, u32)| {
            self.is_met(means, n, &step.costs, step.end.accuracy).then_some(n)
        };
        history.steps.iter().zip(1..).find_map(met)
    }

    /// Returns the arguments of a command.
    pub fn arguments(&self) -> Vec<OsString> {
        let one = |name: &str, value: Option<f64>| value.map(|v| OsString::from(format!("--{name}={v}")));
        [one("pause-at-share", self.share), one("pause-at-accuracy", self.accuracy)]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(rollouts: u64) -> Costs {
        let mut costs = Costs::default();
        costs.spent.run_rollouts = rollouts;
        costs
    }

    #[test]
    fn a_run_pauses_by_its_budget_its_steps_or_its_accuracy() {
        let budget = BudgetConfig {
            rollouts: Some(100),
            tokens: None,
            flops: None,
            seconds: None,
            step_rollouts: None,
            rounds: 1,
        };
        let means = Means { budget, steps: 10 };
        let until = Until { share: Some(0.3), accuracy: Some(0.5) };
        assert!(!until.is_met(&means, 1, &costs(29), None));
        assert!(until.is_met(&means, 1, &costs(30), None));
        assert!(until.is_met(&means, 3, &costs(0), None));
        assert!(until.is_met(&means, 1, &costs(0), Some(0.5)));
        assert!(!until.is_met(&means, 1, &costs(0), Some(0.49)));
        assert!(!Until::default().is_met(&means, 9, &costs(99), Some(1.0)));
    }

    #[test]
    fn it_is_typed_as_it_is_read() {
        let until = Until { share: Some(1.0 / 3.0), accuracy: None };
        assert_eq!(until.arguments(), ["--pause-at-share=0.3333333333333333"]);
    }
}
