//! A grader's report card: valid verdicts, purity alone and in batches, limits, cost.

mod costs;
mod trial;

use allot_allocation::{Value, shown};
use allot_authoring::questions::Made;
use allot_base::{Exit, count};
use allot_component::Kind;
use allot_sandbox::Grader;
use serde_json::json;

use self::costs::Costs;
use self::trial::{Findings, Trial};
use super::rows::{Outcome, Rows, many};
use super::time::Time;
use crate::commands::policies;
use crate::screen::Screen;

/// A grader's report card.
pub struct Card<'m> {
    rows: Rows,
    /// The outcome of `begin`.
    begins: Outcome,
    found: Findings,
    /// Total number of questions.
    questions: usize,
    costs: Costs<'m>,
}

impl<'m> Card<'m> {
    /// Tests a grader with these settings on these questions within this time.
    pub fn of(
        grader: &Grader,
        settings: &[(String, Value)],
        made: &'m [Made],
        time: Time,
        screen: &mut Screen<'_>,
    ) -> Self {
        let mut card = Self {
            rows: Rows::default(),
            begins: Outcome::Pass,
            found: Findings::default(),
            questions: made.len(),
            costs: Costs::new(made, grader.description().compares),
        };
        match Trial::new(grader, settings) {
            Ok(mut trial) => {
                card.costs.once(grader, settings, time);
                trial.questions(made, time, screen);
                // A grader that reaches its limits would reach them in every further call.
                if !trial.found.exhausted {
                    card.costs.again(grader, settings, time);
                }
                card.found = trial.found;
            }
            Err(fault) => card.begins = Outcome::of_begin(&fault, time),
        }
        card.rows = card.rows(grader);
        card
    }

    /// Returns a row for each requirement.
    fn rows(&self, grader: &Grader) -> Rows {
        let Self { begins, found, questions, .. } = self;
        let mut rows = Rows::default();
        let contract = format!("links: contract {}@{}", Kind::Grader.package(), grader.contract());
        rows.add("links", contract, Outcome::Pass);
        rows.add("begins", "begins with these settings", begins.clone());
        if *begins != Outcome::Pass {
            if begins.failure().is_none() {
                rows.missing.push(format!("0 of {questions} questions were tried"));
            }
            return rows;
        }
        let Findings { calls, tried, .. } = found;
        let of = if tried < questions { format!("{tried} of {questions}") } else { questions.to_string() };
        let calls = count(*calls, "call");
        let answers = format!("grades every answer ({calls} on {of} synthetic questions)");
        let untested = (*tried == 0).then_some("no question was tried");
        rows.add("answers", answers, Outcome::of(found.faults.as_ref().map(many), untested));
        let usable = "gives usable verdicts: finite rewards, and the parts that it describes";
        let untested = (found.verdicts() == 0).then_some("no answer got a verdict");
        rows.add("usable", usable, Outcome::of(found.unusable.as_ref().map(many), untested));
        let differ = |impure| format!("two equal calls differ on {}", many(impure));
        let untested = (found.compared == 0).then_some("no answer was graded twice");
        let pure = Outcome::of(found.impure.as_ref().map(differ), untested);
        rows.add("pure", "is pure: equal calls, equal verdicts", pure);
        let differ = |apart| format!("the verdict differs on {}", many(apart));
        let compares = grader.description().compares;
        let (key, row, untested) = if compares {
            ("groups", "gives the answers of a group the same verdicts twice", "no group was graded")
        } else {
            (
                "batches",
                "gives an answer the same verdict in a batch and alone",
                "no batch was graded as a whole",
            )
        };
        let untested = (found.batches == 0).then_some(untested);
        let together = Outcome::of(found.apart.as_ref().map(differ), untested);
        rows.add(key, row, together);
        if tried < questions {
            rows.missing.push(format!("{tried} of {questions} questions were tried"));
        }
        rows.missing.extend(self.costs.missing());
        rows
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        self.rows.exit()
    }

    /// Shows the card as text.
    pub fn show(&self, grader: &Grader, screen: &mut Screen<'_>) {
        policies::show_grader(grader, screen);
        screen.say("");
        self.rows.show(screen);
        for (warning, first) in &self.found.warnings {
            screen.say(format_args!("warn  {warning}\n      its verdict differs on {first}"));
        }
        if self.begins == Outcome::Pass {
            self.show_verdicts(screen);
            screen.say("");
            self.costs.show(screen);
        } else {
            screen.say("");
        }
        screen.say(format_args!("{} bytes, sha256 {}", grader.size(), grader.sha256()));
        self.rows.conclude(screen);
    }

    /// Shows how many answers got each verdict.
    fn show_verdicts(&self, screen: &mut Screen<'_>) {
        let [correct, wrong, open] = self.found.correct;
        let open = if open > 0 { format!(", {open} for the run to say") } else { String::new() };
        let none = self.found.unscorable.as_ref().map_or(0, |(n, _)| *n);
        screen.say(format_args!("note  {correct} correct, {wrong} wrong{open}, {none} unscorable"));
        if let Some((_, first)) = &self.found.unscorable {
            let first = shown::word(first, shown::LINE);
            screen.say(format_args!("      the first unscorable one is {first}"));
        }
    }

    /// Returns the card as JSON.
    pub fn json(&self, grader: &Grader) -> serde_json::Value {
        let Self { rows, found, .. } = self;
        let [correct, wrong, undecided] = found.correct;
        json!({
            "kind": "grader", "grader": grader.description().name, "version": grader.description().version,
            "contract": grader.contract(), "sha256": grader.sha256(), "bytes": grader.size(),
            "result": rows.result(), "pass": rows.exit() == Exit::Good, "complete": rows.complete(),
            "missing": rows.missing, "results": rows.results(), "calls": found.calls,
            "questions": self.questions, "tried": found.tried, "begin": self.begins.failure(),
            "faults": found.faults, "unusable": found.unusable, "impure": found.impure, "apart": found.apart,
            "correct": correct, "wrong": wrong, "undecided": undecided, "unscorable": found.unscorable,
            "warnings": found.warnings, "costs": self.costs.json(),
        })
    }
}
