//! A policy in Python: loaded, with checked settings, queried with views.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Plan, Run, Terms, Value, View};
use allot_record::{CapsStamp, PolicyStamp};
use allot_sandbox::{Caps, Cost, Description, Level, LogLine, Sandbox, Setting};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pythonize::{depythonize, pythonize};
use serde::Deserialize;

use crate::columns::{self, Given};
use crate::exception::{Exception, Result};
use crate::shipped::bytes;

/// A policy: the name of a shipped one, or the path of a component.
#[pyclass(frozen, module = "allot._allot")]
pub struct Policy {
    loaded: Arc<Loaded>,
    /// The run that it has begun, if one was given.
    run: Option<Run>,
    state: Mutex<Vec<u8>>,
}

/// A policy and its settings in a run.
pub struct Loaded {
    /// The component in its sandbox.
    pub policy: allot_sandbox::Policy,
    /// Its effective settings.
    pub settings: Vec<(String, Value)>,
    caps: Caps,
}

/// Limits of one call; see [`Caps`] for the defaults.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CapsGiven {
    fuel: Option<u64>,
    seconds: Option<f64>,
    memory: Option<usize>,
}

/// A run's constants without the settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunGiven {
    prompts: u32,
    steps: u32,
    groups: u32,
    rollouts: u32,
    pool: Option<u32>,
    max_age: Option<u32>,
    #[serde(default)]
    columns: Given,
    /// The terms of sampling, rewards and updates, in a record's format.
    #[serde(default)]
    terms: Option<Terms>,
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (source, settings=None, *, run=None, limits=None, sha256=None))]
    fn new(
        py: Python<'_>,
        source: &str,
        settings: Option<&Bound<'_, PyAny>>,
        run: Option<&Bound<'_, PyAny>>,
        limits: Option<&Bound<'_, PyAny>>,
        sha256: Option<&str>,
    ) -> Result<Self> {
        let settings: BTreeMap<String, serde_json::Value> = given("settings", settings)?.unwrap_or_default();
        let run: Option<RunGiven> = given("run", run)?;
        let caps = given::<CapsGiven>("limits", limits)?.unwrap_or_default().caps()?;
        py.detach(|| {
            let loaded = Loaded::new(source, &settings, caps, sha256)?;
            let run = run.map(|run| run.with(&loaded)).transpose()?;
            let run = run.map(|run| loaded.policy.shown_too(run));
            let state = run.as_ref().map(|run| loaded.begin(run)).transpose()?.unwrap_or_default();
            Ok(Self { loaded: Arc::new(loaded), run, state: Mutex::new(state) })
        })
    }

    /// Returns the policy's description and its build.
    fn describe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Description { name, version, summary, settings, signals, columns, .. } =
            self.loaded.policy.description();
        let setting =
            |s: &Setting| serde_json::json!({"name": s.name, "default": s.default, "summary": s.summary});
        let all = serde_json::json!({
            "name": name, "version": version, "summary": summary,
            "settings": settings.iter().map(setting).collect::<Vec<_>>(), "signals": signals,
            "columns": columns,
            "contract": self.loaded.policy.contract(), "sha256": self.loaded.policy.sha256(),
        });
        Ok(pythonize(py, &all)?.unbind())
    }

    /// Returns the effective settings.
    #[getter]
    fn settings(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let settings: serde_json::Map<_, _> = self
            .loaded
            .settings
            .iter()
            .map(|(name, value)| (name.clone(), serde_json::json!(value)))
            .collect();
        Ok(pythonize(py, &settings)?.unbind())
    }

    /// Returns the policy's state.
    #[getter]
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.remembered())
    }

    #[setter]
    fn set_state(&self, state: Vec<u8>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Returns the policy's plan for a view. Raises an exception if the plan breaks a rule.
    fn decide(&self, py: Python<'_>, view: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let view: View = depythonize(view).map_err(|e| Exception::new(format!("this is no view: {e}")))?;
        let run = self.run.as_ref().ok_or_else(|| {
            Exception::new("a policy decides in a run, and this one was given none")
                .hint("Policy(…, run={\"prompts\": …, \"steps\": …, \"groups\": …, \"rollouts\": …})")
        })?;
        let mut log = Vec::new();
        let plan = py.detach(|| self.loaded.decide(run, &self.remembered(), &view, &mut log));
        tell(py, log)?;
        let plan = plan?;
        let answer = pythonize(py, &plan)?;
        self.set_state(plan.state);
        Ok(answer.unbind())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.loaded.policy)
    }
}

impl Policy {
    /// Returns the part that is shared with a run.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.clone()
    }

    fn remembered(&self) -> Vec<u8> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Loaded {
    fn new(
        source: &str,
        settings: &BTreeMap<String, serde_json::Value>,
        caps: Caps,
        sha256: Option<&str>,
    ) -> Result<Self> {
        let bytes = bytes(source)?;
        let load = || Sandbox::embedded(caps, cache().as_deref())?.load(&bytes, sha256);
        let policy = load().map_err(|e| Exception::load(source, &e))?;
        let Description { name, settings: described, .. } = policy.description();
        let settings = allot_component::in_force(&format!("policy `{name}`"), described, settings, fit)?;
        Ok(Self { policy, settings, caps })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.policy.description().name
    }

    /// Checks the run's settings and returns the first state.
    pub fn begin(&self, run: &Run) -> Result<Vec<u8>> {
        let begun = self.policy.begin(run).map_err(|fault| Exception::fault("", self.name(), &fault))?;
        Ok(begun.0)
    }

    /// Returns a plan that obeys the rules. `log` gets the policy's log lines even for a rejected plan.
    fn decide(&self, run: &Run, state: &[u8], view: &View, log: &mut Vec<LogLine>) -> Result<Plan> {
        let plan = self.ask(run, state, view, log)?;
        let bounds = Bounds::default().within(run);
        rules::check(self.name(), view, &plan, bounds)?;
        Ok(plan)
    }

    /// Returns a plan that may break a rule.
    pub fn ask(&self, run: &Run, state: &[u8], view: &View, log: &mut Vec<LogLine>) -> Result<Plan> {
        let (plan, cost) = self.policy.decide(run, state, view).map_err(|fault| {
            let place = format!("in step {}, round {} ", view.step, view.round);
            Exception::fault(&place, self.name(), &fault)
        })?;
        log.extend(Cost::words(cost));
        Ok(plan)
    }

    /// Returns the policy in a record's format.
    pub fn stamp(&self) -> PolicyStamp {
        let description = self.policy.description();
        PolicyStamp {
            name: description.name.clone(),
            version: description.version.clone(),
            contract: self.policy.contract().to_owned(),
            sha256: self.policy.sha256().to_owned(),
            draft: self.policy.is_draft(),
        }
    }

    /// Returns its limits in a record's format.
    pub fn caps(&self) -> CapsStamp {
        let Caps { fuel, time, memory } = self.caps;
        CapsStamp { fuel, seconds: time.as_secs_f64(), memory }
    }
}

impl CapsGiven {
    fn caps(&self) -> Result<Caps> {
        let default = Caps::default();
        let time = match self.seconds {
            None => default.time,
            Some(s) if s > 0.0 && s <= 86_400.0 => Duration::from_secs_f64(s),
            Some(s) => {
                let what = format!("`limits`: `seconds` is {s}; it is more than 0 and at most a day, 86400");
                return Err(Exception::new(what));
            }
        };
        let fuel = self.fuel.unwrap_or(default.fuel);
        Ok(Caps { fuel, time, memory: self.memory.unwrap_or(default.memory) })
    }
}

impl RunGiven {
    fn with(self, policy: &Loaded) -> Result<Run> {
        let Self { prompts, steps, groups, rollouts, .. } = self;
        let wanted = (policy.name(), policy.policy.description().columns.as_slice());
        let columns = columns::wanted(wanted, &self.columns, None, prompts)?;
        let terms = self.terms.or_else(|| (!columns.is_empty()).then(Terms::default));
        Ok(Run {
            settings: policy.settings.clone(),
            prompts,
            steps,
            groups,
            rollouts,
            pool: self.pool.unwrap_or(groups.saturating_mul(4)),
            max_age: self.max_age.unwrap_or(5),
            lag: 0,
            terms: terms.map(|terms| Terms { columns, ..terms }),
        })
    }
}

/// Converts an argument that consists of dictionaries, lists and numbers. `name` is the argument's name.
pub fn given<T: for<'de> Deserialize<'de>>(
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
) -> Result<Option<T>> {
    let Some(value) = value.filter(|v| !v.is_none()) else { return Ok(None) };
    depythonize(value).map(Some).map_err(|e| Exception::new(format!("`{name}`: {e}")))
}

/// Converts a Python value to a setting of the default's type. An integer is accepted as a number.
fn fit(given: &serde_json::Value, default: &Value) -> Option<Value> {
    match default {
        Value::Flag(_) => given.as_bool().map(Value::Flag),
        Value::Integer(_) => given.as_i64().and_then(|v| i32::try_from(v).ok()).map(Value::Integer),
        Value::Number(_) => given.as_f64().filter(|v| v.is_finite()).map(Value::Number),
        Value::Text(_) => given.as_str().map(|v| Value::Text(v.to_owned())),
    }
}

/// Passes a policy's log lines to Python's logging.
pub fn tell(py: Python<'_>, lines: Vec<LogLine>) -> PyResult<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("allot.policy",))?;
    for line in lines {
        let level = match line.level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warning",
            Level::Error => "error",
        };
        // The text is an argument, because logging would interpret `%` in a message.
        logger.call_method1(level, ("%s", line.text))?;
    }
    Ok(())
}

/// Returns the cache folder of compiled code, which the program uses, too.
fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("ALLOT_CACHE") {
        return std::path::absolute(own.join("wasm")).ok();
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("allot/wasm"))
}
