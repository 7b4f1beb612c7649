//! The trial of a policy: its calls on synthetic views, and the findings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Action, Plan, Run, Value, View};
use allot_authoring::fixtures::{self, Fixture, Kind};
use allot_sandbox::{Fault, Other, Policy};

use crate::commands::check::rows::{Counted, LATE, add};
use crate::commands::check::time::{Time, is_limit};
use crate::cores;
use crate::screen::Screen;

/// One of this many views is tried under changed conditions.
const SAMPLED: usize = 8;
/// Conditions that a plan should not depend on, with advice for the author.
const OTHERS: [(Other, &str); 3] = [
    (
        Other::Random,
        "uses random bytes, which are the same in each call: use `view.seed`, which differs in each call",
    ),
    (Other::Time, "uses a clock, but all clocks are frozen: use `view.step` and `view.round`"),
    (
        Other::Memory,
        "keeps something in memory, but each call starts with fresh memory: return it as the state instead",
    ),
];

/// A run that the policy has begun.
pub struct Begun {
    /// The run.
    pub run: Run,
    /// The policy's first state.
    pub state: Vec<u8>,
}

impl Begun {
    /// Begins a run with a data set of `prompts` prompts.
    fn new(policy: &Policy, settings: &[(String, Value)], prompts: u32) -> Result<Self, Fault> {
        let run = fixtures::run(settings.to_vec(), &policy.description().columns, prompts);
        let run = policy.shown_too(run);
        let (state, _) = policy.begin(&run)?;
        Ok(Self { run, state })
    }
}

/// The trial of a policy.
pub struct Trial<'t> {
    policy: &'t Policy,
    ordinary: Begun,
    /// The run with a large data set.
    pub large: Begun,
    /// The time of the whole check.
    pub time: Time,
    /// The findings.
    pub found: Findings,
}

/// The findings of a trial.
#[derive(Default)]
pub struct Findings {
    /// Number of views tried.
    pub tried: usize,
    /// Number of calls whose plan was checked.
    pub calls: u64,
    /// For each broken rule: how often, and the first message.
    pub broken: BTreeMap<&'static str, (u64, String)>,
    /// Calls without an answer.
    pub faults: Counted,
    /// For the first fault (`answers`) and each broken rule: the hint.
    pub hints: BTreeMap<&'static str, String>,
    /// The view on which a call exceeded the time of the whole check.
    pub unfinished: Option<String>,
    /// Whether a call reached its limit of fuel, time or memory.
    pub exhausted: bool,
    /// Number of pairs of equal calls that were compared.
    pub compared: u64,
    /// Views on which two equal calls differed.
    pub impure: Counted,
    /// Meaningless conditions that the policy's plans depend on, with the first view that shows it.
    pub warnings: BTreeMap<&'static str, String>,
    kept: Kept,
}

/// Counts of plans that kept all rules, by the kinds of plans that rules check.
#[derive(Default)]
struct Kept {
    plans: u64,
    without_rounds: u64,
    without_rollouts: u64,
    /// Plans with a request.
    sampling: u64,
    /// Plans with a pick or a hold.
    training: u64,
}

impl Kept {
    fn add_all(&mut self, other: &Self) {
        self.plans += other.plans;
        self.without_rounds += other.without_rounds;
        self.without_rollouts += other.without_rollouts;
        self.sampling += other.sampling;
        self.training += other.training;
    }

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
}

/// The findings on one view.
#[derive(Default)]
struct Look {
    found: Findings,
    /// Whether a call exceeded the time of the whole check.
    unfinished: bool,
    /// The meaningless conditions that the plan depends on.
    others: Vec<Other>,
}

impl Findings {
    /// Adds those on the next view.
    fn add(&mut self, look: Look, title: &str) {
        let Self { calls, broken, faults, hints, exhausted, compared, impure, kept, .. } = look.found;
        self.tried += 1;
        self.calls += calls;
        for (rule, (times, first)) in broken {
            self.broken.entry(rule).or_insert((0, first)).0 += times;
        }
        for (row, hint) in hints {
            self.hints.entry(row).or_insert(hint);
        }
        for (all, new) in [(&mut self.faults, faults), (&mut self.impure, impure)] {
            if let Some((times, first)) = new {
                all.get_or_insert((0, first)).0 += times;
            }
        }
        self.exhausted |= exhausted;
        self.compared += compared;
        self.kept.add_all(&kept);
        for (other, warning) in OTHERS {
            // Random bytes also change within an instance. That difference is reported as random bytes.
            let known = other == Other::Memory && !self.warnings.is_empty();
            if look.others.contains(&other) && !known {
                self.warnings.entry(warning).or_insert_with(|| title.to_owned());
            }
        }
    }

    /// Returns why a rule was not tested; none if it was: broken, or kept by a plan that it applies to.
    /// Checking a plan stops at the first broken rule, so only plans that keep all rules count.
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
            | "requested-and-skipped" => (sampling, "no valid plan sampled"),
            "unknown-pick" | "picked-twice" | "empty-pick" | "no-such-position" | "position-twice"
            | "bad-weight" | "given-count" | "bad-given" | "unknown-hold" | "held-twice"
            | "held-and-picked" | "empty-mini-batch" | "bad-passes" => {
                (training, "no valid plan trained on a group")
            }
            _ => (plans, "no plan kept all rules"),
        };
        let why = if self.tried == 0 { LATE } else { why };
        (plans == 0 && !self.broken.contains_key(rule)).then_some(why)
    }

    /// Counts a call without an answer.
    pub fn fault(&mut self, title: &str, fault: &Fault) {
        add(&mut self.faults, || format!("on {title}: {fault}"));
        if let Some(hint) = fault.hint() {
            self.hints.entry("answers").or_insert_with(|| hint.to_owned());
        }
        self.exhausted |= is_limit(fault);
    }
}

impl<'t> Trial<'t> {
    /// Begins the runs of all views.
    pub fn new(policy: &'t Policy, settings: &[(String, Value)], time: Time) -> Result<Self, Fault> {
        let begun = |kind: Kind| Begun::new(policy, settings, kind.prompts());
        let (ordinary, large) = (begun(Kind::Random)?, begun(Kind::ManyPrompts)?);
        Ok(Self { policy, ordinary, large, time, found: Findings::default() })
    }

    /// Tries at most `most` further views, as many at a time as there are cores, until the time is over or a call reaches a
    /// limit. Of the views after one that reaches a limit nothing is kept, so that findings do not depend on the cores.
    pub fn views(&mut self, views: &[Fixture], most: usize, time: Time, screen: &mut Screen<'_>) {
        let over = AtomicBool::new(self.found.exhausted);
        let left = views.iter().enumerate().skip(self.found.tried).take(most);
        let left = left.take_while(|_| !over.load(Ordering::Relaxed) && !time.is_over());
        let work = |(place, fixture): (usize, &Fixture)| {
            let look = self.look(fixture, place.is_multiple_of(SAMPLED), time);
            over.fetch_or(look.unfinished || look.found.exhausted, Ordering::Relaxed);
            (place, look)
        };
        let mut looks = BTreeMap::new();
        cores::each(left, work, |(place, look)| {
            looks.insert(place, look);
            screen.draw(format_args!("view {}/{}", self.found.tried + looks.len(), views.len()));
        });
        screen.draw("");

        for (place, look) in looks {
            let title = &views[place].title;
            if look.unfinished {
                self.found.calls += look.found.calls;
                self.found.unfinished = Some(title.clone());
                break;
            }
            self.found.add(look, title);
            if self.found.exhausted {
                break;
            }
        }
    }

    /// Looks at one view; at one that is sampled also under changed conditions.
    fn look(&self, fixture: &Fixture, sampled: bool, time: Time) -> Look {
        let begun = if fixture.kind == Kind::ManyPrompts { &self.large } else { &self.ordinary };
        let mut look = Look::default();
        if let Err(fault) = ask(self.policy, begun, fixture, time, &mut look.found) {
            look.unfinished = time.ended(&fault);
            look.found.fault(&fixture.title, &fault);
        }
        if sampled && !look.unfinished && !look.found.exhausted {
            look.others = others(self.policy, begun, fixture);
        }
        look
    }
}

/// Makes two equal calls on a view, and one with the returned state.
fn ask(
    policy: &Policy,
    begun: &Begun,
    fixture: &Fixture,
    time: Time,
    found: &mut Findings,
) -> Result<(), Fault> {
    let Begun { run, state } = begun;
    let mut state = state.clone();
    let bounds = Bounds::default().within(run);
    for turn in 0..2 {
        found.calls += 1;
        let (plan, _) = policy.decide(run, &state, &fixture.view)?;
        if let Err(broken) = rules::check(&policy.description().name, &fixture.view, &plan, bounds) {
            let first = || format!("on {}: {broken}", fixture.title);
            found.broken.entry(broken.rule.name()).or_insert_with(|| (0, first())).0 += 1;
            found.hints.entry(broken.rule.name()).or_insert_with(|| broken.rule.hint().to_owned());
        } else {
            found.kept.add(&fixture.view, &plan);
            if turn == 0 {
                // Only valid plans are compared: NaN does not equal itself.
                let again = policy.decide(run, &state, &fixture.view).map(|(again, _)| again);
                if let Err(fault) = &again
                    && time.ended(fault)
                {
                    break;
                }
                found.compared += 1;
                if again != Ok(plan.clone()) {
                    add(&mut found.impure, || fixture.title.clone());
                }
            }
        }
        state = plan.state;
    }
    Ok(())
}

/// Calls again under changed conditions, and returns those that the plan depends on. That is not a fault, because they are the
/// same in each call of a run, but it is probably not what the author intends.
fn others(policy: &Policy, begun: &Begun, fixture: &Fixture) -> Vec<Other> {
    let Begun { run, state } = begun;
    let Ok((plan, _)) = policy.decide(run, state, &fixture.view) else { return Vec::new() };
    let told = OTHERS.iter().map(|(other, _)| *other).filter(|other| match other {
        Other::Memory => true,
        Other::Time | Other::Random => policy.has_wasi(),
    });
    // A second call in one instance may run out of memory; runs never make one.
    let differs = |other: &Other| {
        policy.decide_otherwise(*other, run, state, &fixture.view).is_ok_and(|again| again != plan)
    };
    told.filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use allot_allocation::rules::Rule;

    use super::*;

    #[test]
    fn no_rule_passes_without_a_plan() {
        let nothing = Findings::default();
        assert!(Rule::ALL.iter().all(|(rule, _)| nothing.untested(rule).is_some()));
        let mut found = Findings { tried: 1, ..Findings::default() };
        found.broken.insert("no-count", (1, String::new()));
        found.kept.plans = 3;
        let tested: Vec<&str> =
            Rule::ALL.iter().map(|(rule, _)| *rule).filter(|rule| found.untested(rule).is_none()).collect();
        assert!(tested.contains(&"no-count") && tested.contains(&"metric-twice"), "{tested:?}");
        assert!(!tested.contains(&"no-round-left") && !tested.contains(&"requested-twice"), "{tested:?}");
        assert!(!tested.contains(&"unknown-pick"), "{tested:?}");
    }
}
