//! A policy's report card: rules, purity, limits, cost.

mod costs;
mod simulation;
mod trial;

use std::collections::BTreeMap;

use allot_allocation::rules::Rule;
use allot_authoring::fixtures::{self, Fixture};
use allot_base::{Exit, Result, count};
use allot_sandbox::Policy;

use self::costs::Costs;
use self::simulation::simulate;
use self::trial::{Findings, Trial};
use super::rows::{LATE, Outcome, Rows, many};
use super::time::Time;
use crate::commands::policies;
use crate::screen::Screen;

/// Number of random views.
const RANDOM_VIEWS: u32 = 300;
/// The reason why the short run was not made.
const EXHAUSTED: &str = "a call used up its limits";

/// The reason why a draft is not checked completely.
const DRAFT: &str = "it is a draft: check its component";

/// A policy's report card.
pub struct Card {
    rows: Rows,
    /// The outcome of `begin`.
    begins: Outcome,
    found: Findings,
    /// Total number of views.
    views: usize,
    costs: Costs,
    /// How the short run ended; none if it was not finished.
    simulation: std::result::Result<Option<String>, String>,
}

impl Card {
    /// Tests a policy with these settings within this time. A quarter of the time is kept for the short run, and a
    /// fifth may go to costs.
    pub fn of(
        policy: &Policy,
        typed: &BTreeMap<String, toml::Value>,
        time: Time,
        screen: &mut Screen<'_>,
    ) -> Result<Self> {
        let description = policy.description();
        let settings = allot_config::settings(description, typed)?;
        let mut views = fixtures::in_turn(fixtures::views(description.signals.len(), RANDOM_VIEWS));
        if description.plays() {
            for made in &mut views {
                fixtures::add_turns(&mut made.view);
            }
        }
        let mut card = Self {
            rows: Rows::default(),
            begins: Outcome::Pass,
            found: Findings::default(),
            views: views.len(),
            costs: Costs::new(),
            simulation: Ok(None),
        };
        match Trial::new(policy, &settings, time) {
            Ok(trial) => card.test(trial, policy, typed, &views, screen),
            Err(fault) => card.begins = Outcome::of_begin(&fault, time),
        }
        card.rows = card.rows(policy);
        Ok(card)
    }

    fn test(
        &mut self,
        mut trial: Trial<'_>,
        policy: &Policy,
        typed: &BTreeMap<String, toml::Value>,
        views: &[Fixture],
        screen: &mut Screen<'_>,
    ) {
        let time = trial.time;
        trial.views(views, 1, time, screen);
        // A policy that reaches its limits would reach them in every further call.
        if !trial.found.exhausted {
            self.costs.once(policy, &trial.large, time);
            trial.views(views, usize::MAX, time.but_a_quarter(), screen);
        }
        if !trial.found.exhausted {
            self.simulation = simulate(policy, typed, time);
            trial.views(views, usize::MAX, time, screen);
        }
        if !trial.found.exhausted {
            self.costs.again(policy, &trial.large, time);
        }
        self.found = trial.found;
        for (title, fault) in self.costs.faults() {
            self.found.fault(&title, fault);
        }
    }

    /// Returns a row for each requirement.
    fn rows(&self, policy: &Policy) -> Rows {
        let Self { begins, found, views, .. } = self;
        let mut rows = Rows::default();
        let contract = format!("links: contract {}@{}", allot_sandbox::CONTRACT, policy.contract());
        rows.add("links", contract, Outcome::Pass);
        rows.add("begins", "begins with these settings", begins.clone());
        if *begins != Outcome::Pass {
            if begins.failure().is_none() {
                rows.missing.push(format!("0 of {views} views were tried"));
            }
            return rows;
        }
        let Findings { calls, tried, .. } = found;
        let of = if tried < views { format!("{tried} of {views}") } else { views.to_string() };
        let untested = (*tried == 0).then_some(LATE);
        let answers = format!("answers every call ({} on {of} synthetic views)", count(*calls, "call"));
        rows.add("answers", answers, Outcome::of(found.faults.as_ref().map(many), untested));
        rows.hint(found.hints.get("answers"));
        let differ = |impure| format!("two equal calls differ on {}", many(impure));
        let no_plan = if *tried == 0 { LATE } else { "no plan kept all rules" };
        let untested = (found.compared == 0).then_some(no_plan);
        let pure = Outcome::of(found.impure.as_ref().map(differ), untested);
        rows.add("pure", "is pure: equal calls, equal plans", pure);
        for (name, rule) in Rule::ALL {
            // Only the run checks how the size of the state changes.
            let untested = if name == "states-too-large" { self.unfinished() } else { found.untested(name) };
            rows.add(name, rule, Outcome::of(found.broken.get(name).map(many), untested));
            rows.hint(found.hints.get(name));
        }
        let mut ends = "runs to a normal end".to_owned();
        if let Ok(Some(end)) = &self.simulation {
            ends = format!("{ends}: {end}");
        }
        rows.add("runs", ends, Outcome::of(self.simulation.clone().err(), self.unfinished()));
        if policy.is_draft() {
            let what = "runs in the sandbox: with fuel, and without files, clocks and randomness";
            rows.add("sandboxed", what, Outcome::NotTested(DRAFT.to_owned()));
        }
        if tried < views {
            rows.missing.push(format!("{tried} of {views} views were tried"));
        }
        if let Some(view) = &found.unfinished {
            rows.missing.push(format!("a call on {view} took longer than the whole check"));
        }
        rows.missing.extend(self.costs.missing());
        rows
    }

    /// Returns why the short run did not finish, if it did not.
    fn unfinished(&self) -> Option<&'static str> {
        match self.simulation {
            Ok(Some(_)) => None,
            Err(_) => Some("the run failed"),
            Ok(None) if self.found.exhausted => Some(EXHAUSTED),
            Ok(None) => Some(LATE),
        }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        self.rows.exit()
    }

    /// Shows the card as text.
    pub fn show(&self, policy: &Policy, screen: &mut Screen<'_>) {
        policies::show(policy, screen);
        if policy.is_draft() {
            screen.say("    a draft, run by Python");
        }
        screen.say("");
        self.rows.show(screen);
        for (warning, first) in &self.found.warnings {
            screen.say(format_args!("warn  {warning}\n      its plan differs on {first}"));
        }
        screen.say("");
        if self.begins == Outcome::Pass {
            self.costs.show(screen);
        }
        screen.say(format_args!("{} bytes, sha256 {}", policy.size(), policy.sha256()));
        self.rows.conclude(screen);
    }

    /// Returns the card as JSON.
    pub fn json(&self, policy: &Policy) -> serde_json::Value {
        let Self { rows, found, .. } = self;
        let results = rows.results();
        let rules: Vec<_> = Rule::ALL
            .iter()
            .map(|(name, rule)| {
                let broken = found.broken.get(name);
                let result = results.get(name).copied().unwrap_or("not tested");
                serde_json::json!({
                    "name": name, "rule": rule, "result": result, "pass": result == "pass",
                    "times": broken.map_or(0, |b| b.0), "first": broken.map(|b| &b.1),
                })
            })
            .collect();
        serde_json::json!({
            "policy": policy.description().name, "version": policy.description().version,
            "draft": policy.is_draft(), "contract": policy.contract(), "sha256": policy.sha256(), "bytes": policy.size(),
            "result": rows.result(), "pass": rows.exit() == Exit::Good, "complete": rows.complete(),
            "missing": rows.missing, "results": results, "calls": found.calls, "views": [found.tried, self.views],
            "begin": self.begins.failure(), "faults": found.faults, "impure": found.impure, "rules": rules,
            "simulation": self.simulation.as_ref().ok(), "simulation_error": self.simulation.as_ref().err(),
            "warnings": found.warnings, "costs": self.costs.json(), "instantiate_us": self.costs.instance_us(),
        })
    }
}
