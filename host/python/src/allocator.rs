//! A run that a trainer in Python drives: its orders, the sampled rollouts, and the batches to train on.
//!
//! The loop is [`allot_loop`], which the program drives with an engine. Here a trainer drives it.

mod order;
mod told;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;

use allot_allocation::rules::Bounds;
use allot_allocation::{Ceilings, Ledger, Pool, PromptId, RolloutBuffer};
use allot_loop::{At, Constants, Loop, State};
use allot_record::{Head, Record};
use pyo3::prelude::*;
use pythonize::pythonize;

use crate::columns;
use crate::exception::{Exception, Result};
use crate::kept::{self, Of};
use crate::policy::{Loaded, Policy, given, tell};
use crate::setup::Setup;
use told::Told;

/// A run's loop, its policy and its record.
#[pyclass(module = "allot._allot")]
pub struct Allocator {
    policy: Arc<Loaded>,
    of: Of,
    run: Loop,
    record: Record,
    /// The record's first line, until it is written.
    head: Option<Box<Head>>,
    folder: Option<PathBuf>,
    /// Number of rollouts that the last plan requested.
    asked: u64,
    /// Whether the record's last line is written.
    ended: bool,
    /// The error that ended the run, if any.
    failed: Option<String>,
}

#[pymethods]
impl Allocator {
    #[new]
    fn new(policy: &Policy, setup: &Bound<'_, PyAny>) -> Result<Self> {
        let setup: Setup =
            given("setup", Some(setup))?.ok_or_else(|| Exception::new("`setup` is missing"))?;
        setup.check()?;
        let policy = policy.loaded();
        let wanted = &policy.policy.description().signals;
        if let Some(missing) = wanted.iter().find(|s| !setup.signals.contains(s)) {
            let (name, engine) = (policy.name(), &setup.engine);
            let what =
                format!("policy `{name}` wants the signal `{missing}`, which `{engine}` does not measure");
            let hint = "a trainer that measures it says so by signals=[…], and gives it with each rollout";
            return Err(Exception::new(what).hint(hint));
        }
        let run = policy.policy.shown(setup.run(policy.settings.clone()), setup.terms(&policy)?);
        let state = policy.begin(&run)?;
        let limits = setup.limits();
        let tokens = setup.lengths.iter().map(|n| u64::from(*n)).sum();
        let head = setup.head(&policy, run.clone(), &state);
        let state = State::new(
            state,
            Pool::new(setup.seed, setup.order, run.pool, setup.lengths),
            RolloutBuffer::new(wanted.len()),
            Ledger::new(limits),
        );
        let (constants, columns) = columns::apart(&run);
        let (sha256, seed) = (policy.policy.sha256().to_owned(), setup.seed);
        let (advantage, order) = (setup.advantage, setup.order);
        let of = Of { policy: sha256, run: constants, seed, tokens, limits, advantage, order, columns };
        let (seed, scale, bounds) = (setup.seed, setup.advantage, Bounds::default());
        // A trainer decides itself when to evaluate.
        let constants = Constants { run, seed, scale, bounds, every: None, retries: 0 };
        Ok(Self {
            of,
            policy,
            run: Loop::new(constants, Ceilings::default(), state),
            record: Record::none(),
            head: Some(head),
            folder: setup.folder,
            asked: 0,
            ended: false,
            failed: None,
        })
    }

    /// Returns the trainer's next order.
    fn next(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (order, log) = py.detach(|| {
            let mut log = Vec::new();
            (self.order(&mut log), log)
        });
        tell(py, log)?;
        let order = order.inspect_err(|exception| self.stopped(exception))?;
        Ok(pythonize(py, &order)?.unbind())
    }

    /// Takes the sampled rollouts, in the order of the grant. Returns the first one's number and, for each
    /// rollout, whether it is now buffered.
    fn sampled(&mut self, rollouts: &Bound<'_, PyAny>) -> Result<(u64, Vec<bool>)> {
        let told: Vec<Told> = given("rollouts", Some(rollouts))?.unwrap_or_default();
        self.take(told)
    }

    /// Ends a batch. Returns what happened to the buffered rollouts.
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

    /// Stores the eval accuracy before the first step for the record.
    fn scored(&mut self, accuracy: f64) -> Result<()> {
        let head = self.head.as_mut().ok_or_else(|| {
            Exception::new("the first score is taken before the first step")
                .hint("later ones go to trained(accuracy=…)")
        })?;
        head.accuracy = Some(accuracy);
        Ok(())
    }

    /// Returns why the run is over; none if it is not.
    #[getter]
    fn over(&self) -> Option<String> {
        let normal = || (self.run.state.at == At::Over).then(|| self.run.reason().to_string());
        self.failed.clone().or_else(normal)
    }

    /// Returns the number of finished steps.
    #[getter]
    fn steps(&self) -> u32 {
        self.run.state.steps
    }

    /// Returns the number of model updates.
    #[getter]
    fn version(&self) -> u32 {
        self.run.state.version
    }

    /// Returns the rollouts and tokens spent.
    #[getter]
    fn spent(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.run.state.ledger.spent())?.unbind())
    }

    /// Returns the buffered rollouts by prompt, as the policy sees them.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pythonize(py, &self.run.state.buffer.groups())?.unbind())
    }

    /// Returns the numbers of a prompt's buffered rollouts, in their group's order.
    #[pyo3(name = "on_hand")]
    fn buffered(&self, prompt: u32) -> Vec<u64> {
        let buffer = &self.run.state.buffer;
        (0..).map_while(|position| buffer.rollout(PromptId(prompt), position)).map(|id| id.0).collect()
    }

    /// Returns the run's state between two steps, as text.
    fn save(&self) -> Result<String> {
        if !matches!(self.run.state.at, At::Between | At::Over) {
            let what = format!("step {} is not over", self.run.state.steps);
            return Err(Exception::new(what).hint("a state is taken between two steps: after trained(…)"));
        }
        self.record.sync()?;
        kept::save(&self.of, &self.run.state, &self.record.mark())
    }

    /// Resumes from a state. Cuts off the record after that state.
    fn load(&mut self, text: &str) -> Result<()> {
        let (state, mark) = kept::load(text, &self.of)?;
        self.record = match &self.folder {
            // A state from before the first step has no record.
            Some(folder) if mark.bytes > 0 => {
                Record::resume(allot_record::Kept::open(&folder.join("record.jsonl"), &mark)?)?
            }
            _ => Record::none(),
        };
        if mark.bytes > 0 {
            self.head = None;
        }
        self.ended = state.at == At::Over;
        self.failed = None;
        self.run = Loop::new(self.run.of.clone(), Ceilings::default(), state);
        Ok(())
    }
}
