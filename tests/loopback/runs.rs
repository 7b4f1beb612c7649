//! Runs that are done through a server, and what is found in their records.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use allot_allocation::Plan;
use allot_record::{Line, Reader, Rollouts, StepEnd};

use crate::scratch::Scratch;

/// What is said from the error on.
pub fn error(said: &str) -> &str {
    &said[said.find("error: ").unwrap_or_default()..]
}

/// A run to its end.
pub fn trained(scratch: &Scratch, config: &str, run: &str) -> String {
    scratch.write("run.toml", config);
    let said = scratch.allot(&["train", "run.toml", "--out", run]);
    assert!(said.ends_with("exit code 0"), "{said}");
    said
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

/// A run that is asked to stop once it has asked to sample so often.
pub fn stopped(scratch: &Scratch, run: &str, until: usize, asked: impl Fn() -> usize) {
    let mut child = scratch.started(&["train", "run.toml", "--out", run]);
    while asked() < until && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Runs of this config that are asked to stop on their way, and go on: their records are that of a run that was not, and
/// no rollout was asked for twice. `slow` has the server count from 0 and take its time; `asked` is how often it was
/// asked to sample since.
pub fn stopped_again_and_again(scratch: &Scratch, config: &str, slow: impl Fn(), asked: impl Fn() -> usize) {
    slow();
    let whole = trained(scratch, config, "honest");
    let (honest, wanted) = (record(scratch, "honest"), asked());
    let mut within = 0;
    for i in 0..4 {
        let run = format!("run-{i}");
        slow();
        let until = wanted / 4 + i * wanted / 7;
        stopped(scratch, &run, until, &asked);
        let checkpoints = std::fs::read_dir(scratch.path().join(&run).join("checkpoints")).unwrap();
        let newest = checkpoints.map(|entry| entry.unwrap().path()).max().unwrap();
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(newest.join("state.json")).unwrap()).unwrap();
        let paid = state["paid"].as_array().unwrap().len();
        let at = state["run"]["at"].to_string();
        let said = scratch.allot(&["train", "--resume", &run]);
        assert!(said.ends_with("exit code 0"), "{said}");
        assert_eq!(record(scratch, &run), honest, "stopped after {until} requests");
        within += usize::from(paid > 0);
        // An evaluation is begun anew.
        if !at.contains("Evaluating") && !at.contains("Closing") {
            let when = format!("stopped after {until} requests, {paid} rollouts were kept: {at}");
            assert_eq!(asked(), wanted, "{when}; the run that was not stopped: {whole}");
        }
    }
    assert!(within > 0, "no stop came within a round");
}
