//! What a checkpoint takes beside its model: written, synchronised and hashed as at the end of a step, and
//! verified and read as at a resume.

use std::path::Path;

use allot::checkpoint::{self, Checkpoints, FORMAT, Manifest, RunState};
use allot::summary::Totals;
use allot::tally::StepTally;
use allot_allocation::Spent;
use allot_record::Mark;
use allot_sandbox::{Caps, Sandbox};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::steps::{Asking, Case, loaded};

/// What it took. Times are CPU time.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    /// Bytes of the state.
    pub bytes: f64,
    /// Milliseconds to write it.
    pub save: f64,
    /// Milliseconds to read it.
    pub load: f64,
    /// Megabytes that the process held at its peak.
    pub memory: f64,
}

/// A checkpoint of a run in which every prompt was visited, nothing buffered.
pub fn cost(case: &Case) -> Kept {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = loaded(&sandbox, case);
    let world = case.world(&case.run(&policy), Asking::of(&policy), &policy);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::of(folder.path(), 1);
    let manifest = Manifest {
        format: FORMAT,
        steps: 1,
        config: String::new(),
        policy: policy.sha256().to_owned(),
        model: String::new(),
        files: std::collections::BTreeMap::new(),
    };
    let began = clock::process();
    let state = RunState {
        run: &world.run.state,
        optimizer_steps: 1,
        samples: Vec::new(),
        paid: Vec::new().into(),
        evaluation: Spent::default(),
        tally: StepTally::default(),
        waiting: std::collections::VecDeque::new(),
        totals: Totals::new(0.0),
        record: Mark::default(),
        times: Mark::default(),
        metrics: Mark::default(),
        events: Mark::default(),
        log: Mark::default(),
        shadows: std::collections::BTreeMap::new(),
        parts: Vec::new(),
        pending: Vec::new(),
    };
    let place = checkpoints.write(&state, manifest, |_: &Path| Ok(())).unwrap();
    let save = clock::process() - began;
    drop(state);
    let bytes = std::fs::metadata(place.join("state.json")).unwrap().len();
    let began = clock::process();
    let (newest, broken) = checkpoints.newest().unwrap();
    assert!(newest.is_some() && broken.is_empty());
    let state = checkpoint::state(&place).unwrap();
    let load = clock::process() - began;
    assert_eq!(state.run.pool.prompts(), case.prompts);
    Kept { bytes: bytes as f64, save: save * 1e3, load: load * 1e3, memory: clock::memory() }
}
