//! A policy on trial: its calls on synthetic views.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Run, Terms, Value};
use allot_authoring::fixtures::{self, Fixture, Kind};
use allot_sandbox::{Fault, Other, Policy};

use super::findings::Findings;
use crate::commands::check::rows::add;
use crate::commands::check::time::Time;
use crate::screen::Screen;

/// Cores that try views. Each instance may take up to the limit of memory.
const CORES: usize = 8;
/// One of so many views is tried under changed conditions.
const SAMPLED: usize = 8;
/// Conditions that a plan should not depend on, and what the author should do instead.
const OTHERS: [(Other, &str); 3] = [
    (
        Other::Random,
        "uses random bytes, which are the same in each call: take `view.seed`, another in each call",
    ),
    (Other::Time, "uses a clock, and all clocks stand still: take `view.step` and `view.round`"),
    (
        Other::Memory,
        "keeps something in memory, and each call has a fresh one: return what is to last as the state",
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
    /// Begins a run over a data set of so many prompts.
    fn new(policy: &Policy, settings: &[(String, Value)], prompts: u32) -> Result<Self, Fault> {
        let columns = fixtures::columns(&policy.description().columns, prompts);
        let terms = (!columns.is_empty()).then(|| Terms { columns, ..Terms::default() });
        let run = Run {
            settings: settings.to_vec(),
            prompts,
            steps: 200,
            groups: 16,
            rollouts: 8,
            pool: 64,
            max_age: 5,
            lag: 0,
            terms,
        };
        let run = policy.shown_too(run);
        let (state, _) = policy.begin(&run)?;
        Ok(Self { run, state })
    }
}

/// A policy on trial.
pub struct Trial<'t> {
    policy: &'t Policy,
    ordinary: Begun,
    /// Of a large data set.
    pub large: Begun,
    /// The time of the whole check.
    pub time: Time,
    /// What was found.
    pub found: Findings,
}

impl<'t> Trial<'t> {
    /// Begins the runs of all views.
    pub fn new(policy: &'t Policy, settings: &[(String, Value)], time: Time) -> Result<Self, Fault> {
        let begun = |kind: Kind| Begun::new(policy, settings, kind.prompts());
        let (ordinary, large) = (begun(Kind::Random)?, begun(Kind::ManyPrompts)?);
        Ok(Self { policy, ordinary, large, time, found: Findings::default() })
    }

    /// Tries views from the first that was not tried yet until the time is over or a call uses up its limits, and at
    /// most so many. Each core tries another view.
    pub fn views(&mut self, views: &[Fixture], most: usize, time: Time, screen: &mut Screen<'_>) {
        let cores = thread::available_parallelism().map_or(1, NonZero::get).min(CORES);
        let end = views.len().min(self.found.tried.saturating_add(most));
        while self.found.tried < end && !self.found.exhausted && !time.is_over() {
            let first = self.found.tried;
            screen.draw(format_args!("view {}/{}", first + 1, views.len()));
            let round = &views[first..end.min(first + cores)];
            let trial = &*self;
            let found: Vec<Option<Findings>> = thread::scope(|scope| {
                let place = |i: usize| first + i;
                let view = |(i, fixture)| scope.spawn(move || trial.view(place(i), fixture, time));
                let started: Vec<_> = round.iter().enumerate().map(view).collect();
                started
                    .into_iter()
                    .map(|view| view.join().unwrap_or_else(|panic| resume_unwind(panic)))
                    .collect()
            });
            for found in found {
                let Some(found) = found else { return screen.draw("") };
                self.found.join(found);
            }
        }
        screen.draw("");
    }

    /// Tries a view: two equal calls, one more with the state that they returned, and on some views calls under changed
    /// conditions. Returns nothing if the check's time ended a call.
    fn view(&self, place: usize, fixture: &Fixture, time: Time) -> Option<Findings> {
        let mut found = Findings::of_a_view();
        match self.ask(fixture, time, &mut found) {
            Err(fault) if time.ended(&fault) => return None,
            Err(fault) => found.fault(&fixture.title, &fault),
            Ok(()) => {}
        }
        if place.is_multiple_of(SAMPLED) && !found.exhausted {
            self.look_for_others(fixture, &mut found);
        }
        Some(found)
    }

    fn begun(&self, fixture: &Fixture) -> &Begun {
        if fixture.kind == Kind::ManyPrompts { &self.large } else { &self.ordinary }
    }

    fn ask(&self, fixture: &Fixture, time: Time, found: &mut Findings) -> Result<(), Fault> {
        let Begun { run, state } = self.begun(fixture);
        let (policy, view) = (self.policy, &fixture.view);
        let bounds = Bounds::default().within(run);
        let mut state = state.clone();
        for turn in 0..2 {
            let (plan, _) = policy.decide(run, &state, view)?;
            let checked = rules::check(&policy.description().name, view, &plan, bounds);
            found.plan(fixture, &plan, &checked);
            // Only plans that keep the rules are compared: NaN does not equal itself.
            if turn == 0 && checked.is_ok() {
                let again = policy.decide(run, &state, view).map(|(again, _)| again);
                if let Err(fault) = &again
                    && time.ended(fault)
                {
                    return Err(fault.clone());
                }
                found.compared += 1;
                if again.as_ref() != Ok(&plan) {
                    add(&mut found.impure, || fixture.title.clone());
                }
            }
            state = plan.state;
        }
        Ok(())
    }

    /// Asks again under changed conditions. A plan that depends on them is no fault, because they are the same in each
    /// call of a run; it is most likely not what the author thinks.
    fn look_for_others(&self, fixture: &Fixture, found: &mut Findings) {
        let Begun { run, state } = self.begun(fixture);
        let (policy, view) = (self.policy, &fixture.view);
        let Ok((plan, _)) = policy.decide(run, state, view) else { return };
        for (other, warning) in OTHERS {
            let warned = |warning: &str| {
                self.found.warnings.contains_key(warning) || found.warnings.contains_key(warning)
            };
            // Random bytes go on in one instance, too: a difference that comes of them is reported as that.
            let known = match other {
                Other::Memory => OTHERS.iter().any(|(_, warning)| warned(warning)),
                Other::Time | Other::Random => !policy.has_wasi() || warned(warning),
            };
            if known {
                continue;
            }
            // A second call in one instance may fail for want of memory: no run makes one.
            let again = policy.decide_otherwise(other, run, state, view);
            if again.is_ok_and(|again| again != plan) {
                found.warnings.insert(warning, fixture.title.clone());
            }
        }
    }
}
