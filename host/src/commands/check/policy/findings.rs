//! What was found of a policy on synthetic views.

use std::collections::BTreeMap;

use allot_allocation::rules::Broken;
use allot_allocation::{Action, Plan, View};
use allot_authoring::fixtures::Fixture;
use allot_sandbox::Fault;

use crate::commands::check::rows::{Counted, LATE, add};
use crate::commands::check::time::is_limit;

/// What was found.
#[derive(Default)]
pub struct Findings {
    /// Views that were tried.
    pub tried: usize,
    /// Calls of which the plan was checked, or that failed.
    pub calls: u64,
    /// For each broken rule: how often, and the first sentence about it.
    pub broken: BTreeMap<&'static str, (u64, String)>,
    /// Calls without an answer.
    pub faults: Counted,
    /// Whether a call used up its fuel, time or memory.
    pub exhausted: bool,
    /// Pairs of equal calls that were compared.
    pub compared: u64,
    /// Views on which two equal calls differed.
    pub impure: Counted,
    /// What the policy uses that means nothing in a run, and the first view on which it does.
    pub warnings: BTreeMap<&'static str, String>,
    kept: Kept,
}

/// Plans that kept all rules, by what rules judge.
#[derive(Default)]
struct Kept {
    plans: u64,
    without_rounds: u64,
    without_rollouts: u64,
    /// With a request.
    sampling: u64,
    /// With a pick or a hold.
    training: u64,
}

impl Kept {
    fn add(&mut self, view: &View, plan: &Plan) {
        self.plans += 1;
        self.without_rounds += u64::from(view.budget.rounds == 0);
        self.without_rollouts += u64::from(view.budget.step_rollouts == 0);
        match &plan.action {
            Action::Sample(requests) => self.sampling += u64::from(!requests.is_empty()),
            Action::Train(batch) => {
                self.training += u64::from(!batch.picks.is_empty() || !batch.hold.is_empty());
            }
        }
    }

    fn join(&mut self, next: &Self) {
        self.plans += next.plans;
        self.without_rounds += next.without_rounds;
        self.without_rollouts += next.without_rollouts;
        self.sampling += next.sampling;
        self.training += next.training;
    }
}

impl Findings {
    /// Why this rule was not tested, unless it was: broken, or kept by a plan of the kind that it judges. The check of
    /// a plan ends at the first rule that it breaks, so only plans that keep all rules count.
    pub fn untested(&self, rule: &str) -> Option<&'static str> {
        let Kept { plans, without_rounds, without_rollouts, sampling, training } = self.kept;
        let (plans, why) = match rule {
            "no-round-left" => (without_rounds, "no plan was made without a round left"),
            "no-step-rollout-left" => (without_rollouts, "no plan was made without a rollout left"),
            "unknown-request"
            | "no-such-prompt"
            | "requested-twice"
            | "no-count"
            | "small-portion"
            | "temperature"
            | "max-tokens"
            | "requested-and-skipped" => (sampling, "no plan sampled"),
            "unknown-pick" | "picked-twice" | "empty-pick" | "no-such-position" | "position-twice"
            | "bad-weight" | "given-count" | "bad-given" | "unknown-hold" | "held-twice"
            | "held-and-picked" | "empty-mini-batch" | "bad-passes" => {
                (training, "no plan trained on a group")
            }
            _ => (plans, "no plan kept all rules"),
        };
        let why = if self.tried == 0 { LATE } else { why };
        (plans == 0 && !self.broken.contains_key(rule)).then_some(why)
    }

    /// Of one view, before its calls.
    pub fn of_a_view() -> Self {
        Self { tried: 1, ..Self::default() }
    }

    /// Adds what was found on the next view.
    pub fn join(&mut self, next: Self) {
        self.tried += next.tried;
        self.calls += next.calls;
        self.compared += next.compared;
        self.exhausted |= next.exhausted;
        for (rule, new) in next.broken {
            self.broken.entry(rule).and_modify(|known| known.0 += new.0).or_insert(new);
        }
        for (known, new) in [(&mut self.faults, next.faults), (&mut self.impure, next.impure)] {
            if let Some(new) = new {
                known.get_or_insert((0, new.1)).0 += new.0;
            }
        }
        for (warning, first) in next.warnings {
            self.warnings.entry(warning).or_insert(first);
        }
        self.kept.join(&next.kept);
    }

    /// Counts a plan: it keeps all rules, or breaks one.
    pub fn plan(&mut self, fixture: &Fixture, plan: &Plan, checked: &Result<(), Broken>) {
        self.calls += 1;
        match checked {
            Ok(()) => self.kept.add(&fixture.view, plan),
            Err(broken) => {
                let first = || (0, format!("on {}: {broken}", fixture.title));
                self.broken.entry(broken.rule.name()).or_insert_with(first).0 += 1;
            }
        }
    }

    /// Counts a call without an answer.
    pub fn fault(&mut self, title: &str, fault: &Fault) {
        self.calls += 1;
        add(&mut self.faults, || format!("on {title}: {fault}"));
        self.exhausted |= is_limit(fault);
    }
}

#[cfg(test)]
mod tests {
    use allot_allocation::rules::Rule;

    use super::*;

    #[test]
    fn no_rule_passes_without_a_plan() {
        let nothing = Findings::default();
        assert!(Rule::ALL.iter().all(|(rule, _)| nothing.untested(rule).is_some()));
        let mut found = Findings::of_a_view();
        found.broken.insert("no-count", (1, String::new()));
        found.kept.plans = 3;
        let tested: Vec<&str> =
            Rule::ALL.iter().map(|(rule, _)| *rule).filter(|rule| found.untested(rule).is_none()).collect();
        assert!(tested.contains(&"no-count") && tested.contains(&"metric-twice"), "{tested:?}");
        assert!(!tested.contains(&"no-round-left") && !tested.contains(&"requested-twice"), "{tested:?}");
        assert!(!tested.contains(&"unknown-pick"), "{tested:?}");
    }
}
