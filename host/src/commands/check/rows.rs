//! The rows of a report card, of a policy's as of a grader's: each says whether a requirement is met, broken or was
//! not tested.

use std::collections::BTreeMap;

use allot_base::{Exit, count};
use allot_sandbox::Fault;

use super::time::Time;
use crate::screen::Screen;

/// Why something was not tested: there was no time left for it.
pub const LATE: &str = "the time limit was reached";

/// What the test of a requirement came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was tested, and is met.
    Pass,
    /// It is broken; where, in words.
    Fail(String),
    /// It was not tested; why, in words.
    NotTested(String),
}

impl Outcome {
    /// `Fail` if there is a failure, `NotTested` if there is a reason for that, `Pass` otherwise.
    pub fn of(failed: Option<String>, untested: Option<&str>) -> Self {
        match (failed, untested) {
            (Some(failed), _) => Self::Fail(failed),
            (None, Some(why)) => Self::NotTested(why.to_owned()),
            (None, None) => Self::Pass,
        }
    }

    /// What became of a call of `begin` that failed within this time.
    pub fn of_begin(fault: &Fault, time: Time) -> Self {
        if time.ended(fault) { Self::NotTested(LATE.to_owned()) } else { Self::Fail(fault.to_string()) }
    }

    /// Where it is broken, if it is.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Fail(why) => Some(why),
            Self::Pass | Self::NotTested(_) => None,
        }
    }

    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::NotTested(_) => "not tested",
        }
    }
}

/// A requirement, and what its test came to.
pub struct Row {
    /// Its name in JSON.
    pub name: &'static str,
    /// The requirement, in words.
    pub what: String,
    /// What its test came to.
    pub outcome: Outcome,
    /// What to do about a failure.
    pub hint: Option<String>,
}

/// The rows of a card.
#[derive(Default)]
pub struct Rows {
    /// In the order to show them.
    pub rows: Vec<Row>,
    /// What the card lacks although no row says so, in words: views that were not tried, costs that were not measured.
    pub missing: Vec<String>,
}

impl Rows {
    /// Adds a row.
    pub fn add(&mut self, name: &'static str, what: impl Into<String>, outcome: Outcome) {
        self.rows.push(Row { name, what: what.into(), outcome, hint: None });
    }

    /// Says in the last row what to do about a failure.
    pub fn hint(&mut self, hint: Option<&String>) {
        if let Some(row) = self.rows.last_mut() {
            row.hint = hint.cloned();
        }
    }

    /// Whether everything was tested.
    pub fn complete(&self) -> bool {
        self.missing.is_empty() && !self.any(|outcome| matches!(outcome, Outcome::NotTested(_)))
    }

    /// The exit code: an incomplete card with a failure is a failure.
    pub fn exit(&self) -> Exit {
        match () {
            () if self.any(|outcome| matches!(outcome, Outcome::Fail(_))) => Exit::Bad,
            () if self.complete() => Exit::Good,
            () => Exit::Incomplete,
        }
    }

    fn any(&self, of: impl Fn(&Outcome) -> bool) -> bool {
        self.rows.iter().any(|row| of(&row.outcome))
    }

    /// Shows the rows.
    pub fn show(&self, screen: &mut Screen<'_>) {
        for Row { what, outcome, hint, .. } in &self.rows {
            match outcome {
                Outcome::Pass => screen.say(format_args!("pass  {what}")),
                Outcome::Fail(why) => screen.say(format_args!("FAIL  {what}\n      {why}")),
                Outcome::NotTested(why) => screen.say(format_args!("not tested  {what} ({why})")),
            }
            if let Some(hint) = hint {
                screen.say(format_args!("      hint: {hint}"));
            }
        }
    }

    /// Says at the end of a card what fails, and what it lacks.
    pub fn conclude(&self, screen: &mut Screen<'_>) {
        let rows = |of: fn(&Outcome) -> bool| self.rows.iter().filter(|row| of(&row.outcome)).count() as u64;
        let failed = rows(|outcome| matches!(outcome, Outcome::Fail(_)));
        if failed > 0 {
            screen.say(format_args!("FAIL: {}", count(failed, "requirement")));
        }
        if self.complete() {
            return;
        }
        let untested = rows(|outcome| matches!(outcome, Outcome::NotTested(_)));
        let untested = (untested > 0).then(|| format!("not tested: {}", count(untested, "requirement")));
        let missing: Vec<String> = self.missing.iter().cloned().chain(untested).collect();
        // After a failure, or if no views and no costs are missing, more time would not help.
        let more = if failed > 0 || self.missing.is_empty() { "" } else { "; --within gives more time" };
        screen.say(format_args!("incomplete: {}{more}", missing.join(", ")));
    }

    /// The card's result, for programs.
    pub fn result(&self) -> &'static str {
        match self.exit() {
            Exit::Good => "pass",
            Exit::Incomplete => "incomplete",
            Exit::Bad | Exit::Error => "fail",
        }
    }

    /// The result of each row, for programs.
    pub fn results(&self) -> BTreeMap<&'static str, &'static str> {
        self.rows.iter().map(|row| (row.name, row.outcome.name())).collect()
    }
}

/// Something that happened: how often, and the first time in words.
pub type Counted = Option<(u64, String)>;

/// Counts one more.
pub fn add(counted: &mut Counted, first: impl FnOnce() -> String) {
    counted.get_or_insert_with(|| (0, first())).0 += 1;
}

/// What was counted, in words.
pub fn many((n, first): &(u64, String)) -> String {
    if *n > 1 { format!("{first} (and {} more)", n - 1) } else { first.clone() }
}
