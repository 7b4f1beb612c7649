//! Converts a run between two steps to text, and back.

use allot_allocation::advantage::Scale;
use allot_allocation::{Limits, Order, Run};
use allot_loop::State;
use allot_record::Mark;
use serde::{Deserialize, Serialize};

use crate::exception::{Exception, Result};

/// The version of this format.
const FORMAT: u32 = 4;

/// The identity of a checkpoint's run.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct Of {
    /// The component's sha256.
    pub policy: String,
    /// The run's constants.
    pub run: Run,
    /// The run's seed.
    pub seed: u64,
    /// The total length of all prompts, which usually differs between data sets.
    pub tokens: u64,
    /// What it may spend, how advantages are measured, and in which order prompts come.
    pub limits: Limits,
    pub advantage: Scale,
    pub order: Order,
    /// A hash of the columns that the policy sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
}

#[derive(Serialize)]
struct Saved<'a> {
    format: u32,
    of: &'a Of,
    /// The record's length at that time.
    record: &'a Mark,
    kept: &'a State,
}

#[derive(Deserialize)]
struct Read {
    format: u32,
    of: Of,
    record: Mark,
    kept: State,
}

/// Returns a run's state as text.
pub fn save(of: &Of, kept: &State, record: &Mark) -> Result<String> {
    serde_json::to_string(&Saved { format: FORMAT, of, record, kept })
        .map_err(|e| Exception::new(format!("the state could not be written: {e}")))
}

/// Parses a run's state and its record's length. Fails if the state is from another run.
pub fn load(text: &str, of: &Of) -> Result<(State, Mark)> {
    let read: Read =
        serde_json::from_str(text).map_err(|e| Exception::new(format!("this is no state of a run: {e}")))?;
    if read.format != FORMAT {
        let found = read.format;
        return Err(Exception::new(format!(
            "the state has format {found}; this wheel reads format {FORMAT}"
        )));
    }
    let differs = [
        ("policy", read.of.policy != of.policy),
        ("seed", read.of.seed != of.seed),
        ("data set", (read.of.run.prompts, read.of.tokens) != (of.run.prompts, of.tokens)),
        ("data set: its columns", read.of.columns != of.columns),
        ("`steps`", read.of.run.steps != of.run.steps),
        ("`groups`", read.of.run.groups != of.run.groups),
        ("`rollouts`", read.of.run.rollouts != of.run.rollouts),
        ("`max_age`", read.of.run.max_age != of.run.max_age),
        ("`settings`", read.of.run.settings != of.run.settings),
        ("`longest`", read.of.limits.longest != of.limits.longest),
        ("`budget`", read.of.limits != of.limits),
        ("`advantage`", read.of.advantage != of.advantage),
        ("`order`", read.of.order != of.order),
        ("`temperature`, `requests`, `update`, `parameters` or `pool`", read.of.run != of.run),
    ];
    if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
        let hint = "go on with what the run began with, or begin another";
        return Err(Exception::new(format!("the state is from a run with another {what}")).hint(hint));
    }
    let mut kept = read.kept;
    kept.buffer.index();
    Ok((kept, read.record))
}
