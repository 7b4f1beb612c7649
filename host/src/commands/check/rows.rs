//! The rows of a report card. Each says whether a requirement is met, broken or was not tested.

use std::collections::BTreeMap;

use allot_base::{Exit, count};
use allot_sandbox::Fault;

use super::time::Time;
use crate::screen::Screen;

/// The reason of a test that was not made for lack of time.
pub const LATE: &str = "the time limit was reached";

/// The result of testing a requirement.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was tested, and is met.
    Pass,
    /// It is broken; the text says where.
    Fail(String),
    /// It was not tested; the text says why.
    NotTested(String),
}

impl Outcome {
    /// Returns `Fail` if there is a failure, `NotTested` if there is a reason for that, otherwise `Pass`.
    pub fn of(failed: Option<String>, untested: Option<&str>) -> Self {
        match (failed, untested) {
            (Some(failed), _) => Self::Fail(failed),
            (None, Some(why)) => Self::NotTested(why.to_owned()),
            (None, None) => Self::Pass,
        }
    }

    /// Returns the outcome of a call of `begin` that failed.
    pub fn of_begin(fault: &Fault, time: Time) -> Self {
        if time.ended(fault) { Self::NotTested(LATE.to_owned()) } else { Self::Fail(fault.to_string()) }
    }

    /// Returns where it is broken, if it is.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Fail(why) => Some(why),
            Self::Pass | Self::NotTested(_) => None,
        }
    }

    /// Returns its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::NotTested(_) => "not tested",
        }
    }
}

/// A requirement and the result of its test.
pub struct Row {
    /// Its name in JSON.
    pub name: &'static str,
    /// The requirement, in words.
    pub what: String,
    /// The result of its test.
    pub outcome: Outcome,
    /// The hint for a failure.
    pub hint: Option<String>,
}

/// The rows of a report card.
#[derive(Default)]
pub struct Rows {
    /// In the order to show them.
    pub rows: Vec<Row>,
    /// What else was not tested, in words: views that were not tried, costs that were not measured.
    pub missing: Vec<String>,
}

impl Rows {
    /// Adds a row.
    pub fn add(&mut self, name: &'static str, what: impl Into<String>, outcome: Outcome) {
        self.rows.push(Row { name, what: what.into(), outcome, hint: None });
    }

    /// Adds a hint to the last row.
    pub fn hint(&mut self, hint: Option<&String>) {
        if let Some(row) = self.rows.last_mut() {
            row.hint = hint.cloned();
        }
    }

    /// Returns whether everything was tested.
    pub fn complete(&self) -> bool {
        self.missing.is_empty() && !self.any(|outcome| matches!(outcome, Outcome::NotTested(_)))
    }

    /// Returns the exit code. An incomplete card with a failure counts as a failure.
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

    /// Prints a summary of failures and missing tests.
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
        // More time would not help after a failure, or if no views and costs are missing.
        let more = if failed > 0 || self.missing.is_empty() { "" } else { "; --within gives more time" };
        screen.say(format_args!("incomplete: {}{more}", missing.join(", ")));
    }

    /// Returns the card's result for JSON.
    pub fn result(&self) -> &'static str {
        match self.exit() {
            Exit::Good => "pass",
            Exit::Incomplete => "incomplete",
            Exit::Bad | Exit::Error => "fail",
        }
    }

    /// Returns the result of each row for JSON.
    pub fn results(&self) -> BTreeMap<&'static str, &'static str> {
        self.rows.iter().map(|row| (row.name, row.outcome.name())).collect()
    }
}

/// How often something happened, and a message about the first time.
pub type Counted = Option<(u64, String)>;

/// Adds one to a count.
pub fn add(counted: &mut Counted, first: impl FnOnce() -> String) {
    counted.get_or_insert_with(|| (0, first())).0 += 1;
}

/// Returns the count in words.
pub fn many((n, first): &(u64, String)) -> String {
    if *n > 1 { format!("{first} (and {} more)", n - 1) } else { first.clone() }
}
