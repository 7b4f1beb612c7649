//! A run's config: a TOML file that is checked before anything starts. This module has the sections of
//! every run; [`simulate`] and [`train`] have those of simulated runs and training runs.
//!
//! ```
//! use allot_config::Tree;
//! use allot_config::simulate::SimulateConfig;
//!
//! let text = "
//!     run = { seed = 1, steps = 10, groups = 4, rollouts = 8 }
//!     budget.rollouts = 1000
//!     policy.use = 'uniform'
//! ";
//! let tree = Tree::parse(text, "run.toml", &["run.seed=2".to_owned()])?;
//! assert_eq!(SimulateConfig::of(&tree)?.run.seed, 2);
//! # Ok::<(), allot_base::Error>(())
//! ```

mod aliases;
mod arm;
mod base;
pub mod compare;
pub mod grade;
mod hints;
mod node;
pub mod ranges;
pub mod requests;
mod shipped;
pub mod simulate;
pub mod train;
mod tree;
pub mod tune;
mod typed;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{Ceilings, Every, Limits, Order, Run, Spent, Value};
use allot_base::{Error, Result, looks_like_a_path, nearest, settle};
use allot_component::{Caps, Description, sha256};
use serde::{Deserialize, Serialize};

pub use base::open;
pub use shipped::Shipped;
pub use tree::Tree;

/// Seed, steps and group geometry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The run's name in a report. By default its policy's name and the settings that differ among runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The seed of all randomness.
    pub seed: u64,
    /// Maximum number of steps. The budget may end the run earlier.
    pub steps: u32,
    /// Groups in each update.
    pub groups: u32,
    /// Rollouts in each group of a uniform policy.
    pub rollouts: u32,
    /// Prompts on offer in each view. By default four times `groups`.
    pub pool: Option<u32>,
    /// Maximum age of a held rollout, in updates.
    #[serde(default = "five")]
    pub max_age: u32,
    /// Steps that may wait for their updates during sampling. At 1, a step is sampled while the step before
    /// it updates the model, at the weights before that update.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub lag: u32,
    /// The order of the prompts.
    #[serde(default = "shuffled")]
    pub order: Order,
}

/// The budget, in at least one measure. The run ends at the first limit reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Rollouts of the run. Never exceeded.
    pub rollouts: Option<u64>,
    /// Generated tokens of the run. Never exceeded.
    pub tokens: Option<u64>,
    /// Floating-point operations of the run: reading prompts, generating, training. Never exceeded.
    pub flops: Option<f64>,
    /// Seconds of the run's steps, enforced by extrapolation: the last sampling or update may exceed it.
    pub seconds: Option<f64>,
    /// Rollouts in a step. Limits one request's share of the run and of this machine's memory. By default
    /// [`Limits::rollouts_of_step`].
    pub step_rollouts: Option<u32>,
    /// Rounds of sampling in a step.
    #[serde(default = "ten")]
    pub rounds: u32,
}

/// The policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// A built-in policy's name, or the path of a component.
    #[serde(rename = "use")]
    pub source: String,
    /// The hash that the component must have, if given.
    pub sha256: Option<String>,
    /// The policy's settings. Those not given have the policy's defaults.
    #[serde(default)]
    pub settings: BTreeMap<String, toml::Value>,
    /// Limits of one call.
    #[serde(default)]
    pub limits: CapsConfig,
}

/// Limits of one call of a policy; see [`Caps`] for the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsConfig {
    /// Wasm instructions.
    pub fuel: Option<u64>,
    /// Wall-clock seconds.
    pub seconds: Option<f64>,
    /// Memory, in bytes.
    pub memory: Option<usize>,
    /// Maximum size in the run's record of all changes of the policy's state, in bytes.
    pub states: Option<u64>,
}

/// Maximum of `run.lag`. A larger lag makes rollouts staler without hiding more time.
const MOST_LAG: u32 = 8;

fn five() -> u32 {
    5
}

fn ten() -> u32 {
    10
}

fn shuffled() -> Order {
    Order::Shuffled
}

/// Returns when accuracy is measured. At most one interval may be given. The default is every ten steps.
pub fn every(
    name: &str,
    steps: Option<u32>,
    rollouts: Option<u64>,
    tokens: Option<u64>,
    growth: Option<f64>,
) -> Result<Every> {
    let given = [
        steps.map(|n| ("every", Every::Steps(n), n == 0)),
        rollouts.map(|n| ("every_rollouts", Every::Rollouts(n), n == 0)),
        tokens.map(|n| ("every_tokens", Every::Tokens(n), n == 0)),
    ];
    let given: Vec<_> = given.into_iter().flatten().collect();
    if let Some((key, ..)) = given.iter().find(|(.., zero)| *zero) {
        return Err(Error::new(format!("`{name}`: `evaluation.{key}` is 0; expected at least 1")));
    }
    if let Some(growth) = growth {
        let wrong = |what: String| Err(Error::new(format!("`{name}`: `evaluation.growth` {what}")));
        if !(0.001..=1.0).contains(&growth) {
            return wrong(format!("is {growth}; expected 0.001 to 1"));
        }
        let thousandths = (growth * 1000.0).round() as u32;
        return match given[..] {
            [(_, Every::Rollouts(least), _)] => Ok(Every::Growing { least, thousandths }),
            _ => wrong("needs `evaluation.every_rollouts`, and no other interval".to_owned()),
        };
    }
    match given[..] {
        [] => Ok(Every::Steps(10)),
        [(_, every, _)] => Ok(every),
        [(one, ..), (other, ..), ..] => {
            let what = format!("`{name}`: `evaluation.{one}` and `evaluation.{other}` are both given");
            Err(Error::new(what).hint("set only one of them"))
        }
    }
}

/// Maximum size of a config, in bytes. It is far larger than any config and stops reads of endless devices.
const LARGEST: u64 = 1 << 20;

/// Returns a config file's text.
pub fn read(path: &Path) -> Result<String> {
    let bytes = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let bytes = bytes.map_err(|e| Error::file("read", path, &e))?;
    if bytes.len() as u64 > LARGEST {
        let what = format!("`{}` is too long for a config: it has more than {LARGEST} bytes", path.display());
        return Err(Error::new(what).hint("name a TOML file: `allot configs quickstart` prints one"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]).into_owned();
        let line = 1 + before.matches('\n').count();
        Error::new(format!("`{}` line {line} is not UTF-8 text", path.display()))
    })
}

/// Parses a config. `name` names it in errors.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str, name: &str) -> Result<T> {
    Tree::parse(text, name, &[])?.config()
}

/// Maximum number of groups, and of rollouts in a group: as many as one view can hold.
const MOST_GROUPS: u64 = 1 << 20;

/// A key, its value and its upper bound. The lower bound is 1.
type Bounded<'a> = (&'a str, u64, u64);

/// Refuses a number outside its bounds.
pub fn bounded(name: &str, numbers: &[Bounded<'_>]) -> Result<()> {
    for (key, value, most) in numbers {
        if *value == 0 {
            return Err(Error::new(format!("`{name}`: `{key}` is 0; expected at least 1")));
        }
        if value > most {
            return Err(Error::new(format!("`{name}`: `{key}` is {value}; expected at most {most}")));
        }
    }
    Ok(())
}

/// Checks the sections of every run. `more` has further numbers with their bounds.
fn check(
    name: &str,
    run: &RunConfig,
    budget: &BudgetConfig,
    policy: &PolicyConfig,
    advantage: Scale,
    more: &[Bounded<'_>],
) -> Result<()> {
    let (any, any_long) = (u64::from(u32::MAX), u64::MAX);
    bounded(
        name,
        &[
            ("run.steps", u64::from(run.steps), any),
            ("run.groups", u64::from(run.groups), MOST_GROUPS),
            ("run.rollouts", u64::from(run.rollouts), MOST_GROUPS),
            ("run.pool", run.pool.map_or(1, u64::from), any),
            ("budget.rollouts", budget.rollouts.unwrap_or(1), any_long),
            ("budget.tokens", budget.tokens.unwrap_or(1), any_long),
            ("budget.step_rollouts", budget.step_rollouts.map_or(1, u64::from), any),
            ("budget.rounds", u64::from(budget.rounds), any),
        ],
    )?;
    bounded(name, more)?;
    run.check_lag(name)?;
    budget.check(name)?;
    policy.limits.check(&format!("`{name}`, [policy.limits]"))?;
    if !(advantage.epsilon.is_finite() && advantage.epsilon >= 0.0) {
        let epsilon = advantage.epsilon;
        return Err(Error::new(format!(
            "`{name}`: `advantage.epsilon` is {epsilon}; expected a finite number, 0 or more"
        )));
    }
    Ok(())
}

impl BudgetConfig {
    fn check(&self, name: &str) -> Result<()> {
        for (key, value) in [("flops", self.flops), ("seconds", self.seconds)] {
            if let Some(value) = value.filter(|v| !(v.is_finite() && *v > 0.0)) {
                let what = format!("`{name}`: `budget.{key}` is {value}; expected a finite number above 0");
                return Err(Error::new(what));
            }
        }
        let limits = [self.rollouts.is_some(), self.tokens.is_some(), !self.ceilings().are_none()];
        if limits.contains(&true) {
            return Ok(());
        }
        let error = Error::new(format!("`{name}`: [budget] sets no limit"));
        Err(error.hint("set `rollouts`, `tokens`, `flops` or `seconds`"))
    }

    /// Fills in defaults that depend on the run.
    fn settle(&mut self, run: &RunConfig) {
        let default = Limits::rollouts_of_step(self.rounds, run.groups, run.rollouts);
        self.step_rollouts.get_or_insert(default);
    }

    /// Returns the limits in FLOPs and seconds, which the ledger does not count.
    pub fn ceilings(&self) -> Ceilings {
        Ceilings { flops: self.flops, seconds: self.seconds }
    }

    /// Returns the spent share of the budget, from 0 to 1, in the measure closest to its limit. `flops` is
    /// the run's number of floating-point operations, and `seconds` the time of its steps.
    pub fn share(&self, spent: Spent, flops: f64, seconds: f64) -> f64 {
        let of = |done: f64, most: Option<f64>| most.map_or(0.0, |most| (done / most).min(1.0));
        [
            of(spent.run_rollouts as f64, self.rollouts.map(|n| n as f64)),
            of(spent.run_tokens as f64, self.tokens.map(|n| n as f64)),
            of(flops, self.flops),
            of(seconds, self.seconds),
        ]
        .into_iter()
        .fold(0.0, f64::max)
    }

    /// Returns the budget in words, one item for each measure.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.rollouts.map(|n| format!("{n} rollouts")));
        words.extend(self.tokens.map(|n| format!("{n} generated tokens")));
        words.extend(self.flops.map(|n| format!("{n:e} FLOPs")));
        words.extend(self.seconds.map(|n| format!("{n} seconds")));
        words
    }

    /// Returns the ledger's limits, for answers of at most this many tokens.
    pub fn limits(&self, longest: u32) -> Limits {
        Limits {
            rounds: self.rounds,
            step_rollouts: self.step_rollouts,
            run_rollouts: self.rollouts,
            run_tokens: self.tokens,
            longest,
        }
    }
}

impl RunConfig {
    /// Refuses a lag at which a step's own rollouts become stale.
    fn check_lag(&self, name: &str) -> Result<()> {
        let (lag, oldest) = (self.lag, self.max_age);
        if lag > MOST_LAG {
            let error = Error::new(format!("`{name}`: `run.lag` is {lag}; expected 0 to {MOST_LAG}"));
            return Err(error.hint("set it to 1 to sample and train at the same time"));
        }
        if lag > oldest {
            let what = format!(
                "`{name}`: `run.lag` is {lag} and `run.max_age` {oldest}: each rollout would be older than that when it is \
                 first trained on"
            );
            return Err(
                Error::new(what).hint(format!("set `run.max_age` to {lag} or more, or a smaller `run.lag`"))
            );
        }
        Ok(())
    }

    /// Returns the run as policies see it, for this number of prompts.
    pub fn run(&self, prompts: u32, settings: Vec<(String, Value)>) -> Run {
        Run {
            settings,
            prompts,
            steps: self.steps,
            groups: self.groups,
            rollouts: self.rollouts,
            pool: self.pool.unwrap_or(self.groups.saturating_mul(4)),
            max_age: self.max_age,
            lag: self.lag,
            terms: None,
        }
    }
}

impl PolicyConfig {
    /// Makes the component's path absolute.
    pub fn settle(&mut self) -> Result<()> {
        settle(&mut self.source)
    }

    /// Stores the component's current hash in the config, if the component is a file of the user.
    pub fn pin(&mut self) {
        if self.sha256.is_none()
            && looks_like_a_path(&self.source)
            && let Ok(bytes) = std::fs::read(&self.source)
        {
            self.sha256 = Some(sha256(&bytes));
        }
    }

    /// Replaces the policy. Drops the settings and the hash of the previous one.
    pub fn become_other(&mut self, source: &str) {
        if source != self.source {
            self.settings.clear();
            self.sha256 = None;
        }
        source.clone_into(&mut self.source);
    }

    /// Replaces the policy from the command line. Refuses an override, of these KEY=VALUE, that would be dropped with the
    /// previous one.
    pub fn replace(&mut self, source: &str, overrides: &[String]) -> Result<()> {
        let of_policy = |one: &&String| {
            let key = one.split('=').next().unwrap_or_default().trim();
            key == "policy"
                || ["policy.use", "policy.settings", "policy.sha256"].iter().any(|k| key.starts_with(k))
        };
        if let Some(lost) = overrides.iter().find(of_policy).filter(|_| source != self.source) {
            let what = format!("`-o {lost}` is for the config's policy, which `{source}` replaces");
            return Err(
                Error::new(what).hint(format!("set what `{source}` is to have with --set NAME=VALUE"))
            );
        }
        self.become_other(source);
        Ok(())
    }
}

impl CapsConfig {
    /// Checks the limits. `place` is their section.
    pub fn check(&self, place: &str) -> Result<()> {
        match self.seconds.filter(|s| !(*s > 0.0 && *s <= 86_400.0)) {
            Some(s) => {
                Err(Error::new(format!("{place}: `seconds` is {s}; expected more than 0 and at most 86400")))
            }
            None => Ok(()),
        }
    }

    /// Returns the limits on plans.
    pub fn bounds(&self) -> Bounds {
        let default = Bounds::default();
        Bounds { states: self.states.unwrap_or(default.states), ..default }
    }

    /// Returns the limits, with defaults filled in.
    pub fn caps(&self) -> Caps {
        let default = Caps::default();
        Caps {
            fuel: self.fuel.unwrap_or(default.fuel),
            time: self.seconds.map_or(default.time, Duration::from_secs_f64),
            memory: self.memory.unwrap_or(default.memory),
        }
    }
}

/// Returns every setting of a policy's description with the given value or its default.
///
/// # Errors
///
/// A setting that the policy does not have, or a value of another type.
pub fn settings(
    description: &Description,
    given: &BTreeMap<String, toml::Value>,
) -> Result<Vec<(String, Value)>> {
    let owner = format!("policy `{}`", description.name);
    let settings = allot_component::settings(&owner, &description.settings, given);
    let names = || description.settings.iter().map(|setting| setting.name.as_str());
    settings.map_err(|error| match given.keys().find(|name| names().all(|known| known != *name)) {
        // Names of settings have no dots, so this is a key of the config.
        Some(key) if key.contains('.') => Error::new(error.what)
            .hint(format!("Use `-o {key}=…` instead of `--set`: `{key}` is a key of the config.")),
        Some(key) if nearest(key, names()).is_none() => {
            error.hint("Use `-o SECTION.KEY=VALUE` to change a key of the config.")
        }
        _ => error,
    })
}

/// Returns the settings given on the command line. Refuses repeated ones. `before` is the option's name.
pub fn typed(all: &[String], before: &str) -> Result<BTreeMap<String, toml::Value>> {
    let mut settings = BTreeMap::new();
    for one in all {
        let form = || Error::new(format!("`{before}{one}` is not of the form NAME=VALUE"));
        let (name, value) = setting(one).ok_or_else(form)?;
        if settings.insert(name.clone(), value).is_some() {
            return Err(Error::new(format!("`{before}{name}=…` is given twice")));
        }
    }
    Ok(settings)
}

/// Parses NAME=VALUE from the command line. A value that is not valid TOML is taken as text.
pub fn setting(typed: &str) -> Option<(String, toml::Value)> {
    let (name, value) = typed.split_once('=')?;
    let one = |mut table: toml::Table| if table.len() == 1 { table.remove("v") } else { None };
    let parsed = toml::from_str(&format!("v = {value}")).ok().and_then(one);
    Some((name.trim().to_owned(), parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()))))
}
