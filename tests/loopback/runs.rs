//! Runs that are done through a server, and what is found in their records.

use std::path::Path;

use allot_allocation::Plan;
use allot_record::{Line, Reader, Rollouts, StepEnd};

use crate::scratch::Scratch;

/// What is said from the error on.
pub fn error(said: &str) -> &str {
    &said[said.find("error: ").unwrap_or_default()..]
}

/// A run to its end.
pub fn trained(scratch: &Scratch, config: &str, run: &str) {
    scratch.write("run.toml", config);
    let said = scratch.allot(&["train", "run.toml", "--out", run]);
    assert!(said.ends_with("exit code 0"), "{said}");
}

/// The text of a run's record.
pub fn record(scratch: &Scratch, run: &str) -> String {
    scratch.read(&format!("{run}/record.jsonl"))
}

/// What a record says, by kind of line.
pub fn lines(run: &Path) -> (Vec<Plan>, Vec<Rollouts>, Vec<StepEnd>) {
    let (reader, _) = Reader::open(run).unwrap();
    let (mut plans, mut rollouts, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for line in reader {
        match line.unwrap() {
            Line::Call(call) => plans.push(call.plan),
            Line::Rollouts(sampled) => rollouts.push(*sampled),
            Line::Step(step) => steps.push(*step),
            _ => {}
        }
    }
    (plans, rollouts, steps)
}
