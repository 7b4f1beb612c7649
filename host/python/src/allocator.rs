//! A run that its trainer drives: what to sample, what came of it, what to train on.
//!
//! `host/src/step.rs` calls an engine; here a trainer calls. So its one function is cut in three, at the two
//! places where it waits for the engine: `next`, `sampled`, `trained`. The order of everything in between is
//! the same, and a test replays a recorded run through both.

mod order;
mod step;
mod told;

use std::path::PathBuf;
use std::sync::Arc;

use allot_allocation::advantage::Scale;
use allot_allocation::{Batch, Line as Granted, Pool, PromptId, Run, Shelf, View};
use allot_record::{Head, Record};
use pyo3::prelude::*;
use pythonize::pythonize;

use crate::kept::{self, Kept, Of};
use crate::policy::{Loaded, Policy, given, tell};
use crate::setup::Setup;
use crate::trouble::{Result, Trouble};
use order::Learn;
use step::Rewards;
use told::Told;

/// A run's pool, shelf, books, policy and record.
#[pyclass(module = "allot._allot")]
pub struct Allocator {
    policy: Arc<Loaded>,
    run: Run,
    of: Of,
    kept: Kept,
    record: Record,
    /// The record's first line, until it is written.
    head: Option<Box<Head>>,
    folder: Option<PathBuf>,
    scale: Scale,
    round: u32,
    rewards: Rewards,
    phase: Phase,
}

/// Whose turn it is.
enum Phase {
    /// The policy's, at the beginning of a step.
    Between,
    /// The policy's, within a step.
    Asking,
    /// The trainer's: it samples.
    Sampling { view: Box<View>, granted: Vec<Granted> },
    /// The trainer's: it learns.
    Training { view: Box<View>, batch: Batch, learned: Vec<Learn> },
}

#[pymethods]
impl Allocator {
    #[new]
    fn new(policy: &Policy, setup: &Bound<'_, PyAny>) -> Result<Self> {
        let setup: Setup = given("setup", Some(setup))?.ok_or_else(|| Trouble::new("`setup` is missing"))?;
        setup.check()?;
        let policy = policy.loaded();
        let wanted = &policy.policy.description().signals;
        if let Some(missing) = wanted.iter().find(|s| !setup.signals.contains(s)) {
            let (name, engine) = (policy.name(), &setup.engine);
            let what =
                format!("policy `{name}` wants the signal `{missing}`, which `{engine}` does not measure");
            let hint = "a trainer that measures it says so by signals=[…], and gives it with each rollout";
            return Err(Trouble::new(what).hint(hint));
        }
        let run = setup.run(policy.settings.clone());
        let state = policy.begin(&run)?;
        let limits = setup.limits();
        let tokens = setup.lengths.iter().map(|n| u64::from(*n)).sum();
        let head = setup.head(&policy, run.clone(), &state);
        let kept = Kept {
            pool: Pool::new(setup.seed, setup.order, run.pool, setup.lengths),
            shelf: Shelf::new(wanted.len()),
            books: allot_allocation::Books::new(limits),
            state,
            steps: 0,
            version: 0,
            last: None,
            over: None,
        };
        Ok(Self {
            of: Of { policy: policy.policy.sha256().to_owned(), run: run.clone(), seed: setup.seed, tokens },
            policy,
            run,
            kept,
            record: Record::none(),
            head: Some(head),
            folder: setup.folder,
            scale: setup.advantage,
            round: 0,
            rewards: Rewards::default(),
            phase: Phase::Between,
        })
    }

    /// What the trainer is to do next.
    fn next(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (order, log) = py.detach(|| {
            let mut log = Vec::new();
            (self.order(&mut log), log)
        });
        tell(py, log)?;
        let order = order.inspect_err(|trouble| self.stopped(trouble))?;
        Ok(pythonize(py, &order)?.unbind())
    }

    /// Takes what was sampled: the rollouts granted, in their order. Gives the first one's number, and for each
    /// whether it is on hand now.
    fn sampled(&mut self, rollouts: &Bound<'_, PyAny>) -> Result<(u64, Vec<bool>)> {
        let told: Vec<Told> = given("rollouts", Some(rollouts))?.unwrap_or_default();
        self.take(told)
    }

    /// The trainer is done with the batch. Gives what became of the rollouts on hand.
    #[pyo3(signature = (updated, metrics, accuracy=None))]
    fn trained(
        &mut self,
        py: Python<'_>,
        updated: bool,
        metrics: Vec<(String, f64)>,
        accuracy: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (settled, end) = self.settle(updated, metrics, accuracy)?;
        Ok(pythonize(py, &serde_json::json!({"settled": settled, "step": end}))?.unbind())
    }

    /// The score before the first step, for the record.
    fn scored(&mut self, accuracy: f64) -> Result<()> {
        let head = self.head.as_mut().ok_or_else(|| {
            Trouble::new("the first score is taken before the first step")
                .hint("later ones go to trained(accuracy=…)")
        })?;
        head.accuracy = Some(accuracy);
        Ok(())
    }

    /// Why the run is over, or none.
    #[getter]
    fn over(&self) -> Option<&str> {
        self.kept.over.as_deref()
    }

    /// Steps finished.
    #[getter]
    fn steps(&self) -> u32 {
        self.kept.steps
    }

    /// Model updates made.
    #[getter]
    fn version(&self) -> u32 {
        self.kept.version
    }

    /// What was spent.
    #[getter]
    fn spent(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.kept.books.spent())?.unbind())
    }

    /// Rollouts on hand, by prompt, as the policy sees them.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.kept.shelf.groups())?.unbind())
    }

    /// The numbers of the rollouts on hand of a prompt, in their group's order.
    fn on_hand(&self, prompt: u32) -> Vec<u64> {
        let shelf = &self.kept.shelf;
        (0..).map_while(|position| shelf.rollout(PromptId(prompt), position)).map(|id| id.0).collect()
    }

    /// The run's state between two steps, as text.
    fn save(&self) -> Result<String> {
        if !matches!(self.phase, Phase::Between) {
            let what = format!("step {} is not over", self.kept.steps);
            return Err(Trouble::new(what).hint("a state is taken between two steps: after trained(…)"));
        }
        self.record.sync()?;
        kept::save(&self.of, &self.kept, &self.record.mark())
    }

    /// Goes on from a state. What the record had after it is cut off.
    fn load(&mut self, text: &str) -> Result<()> {
        let (kept, mark) = kept::load(text, &self.of)?;
        self.record = match &self.folder {
            // Of a state from before the first step there is nothing to go on with.
            Some(folder) if mark.bytes > 0 => {
                Record::resume(allot_record::Kept::open(&folder.join("record.jsonl"), &mark)?)?
            }
            _ => Record::none(),
        };
        if mark.bytes > 0 {
            self.head = None;
        }
        self.kept = kept;
        self.round = 0;
        self.rewards = Rewards::default();
        self.phase = Phase::Between;
        Ok(())
    }
}
