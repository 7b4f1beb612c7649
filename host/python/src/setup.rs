//! The setup of a run, as its trainer gives it, checked before anything starts.

use std::path::PathBuf;

use allot_allocation::advantage::Scale;
use allot_allocation::{
    Ceilings, Geometry, LENGTH, Limits, Need, Order, Run, SamplerRange, SamplerSettings, Terms, TokenCosts,
    Value,
};
use allot_component::sha256;
use allot_record::{Head, hex};
use serde::Deserialize;

use crate::columns::{self, Given};
use crate::exception::{Exception, Result};
use crate::policy::Loaded;

/// The setup of a run. The names are those of a config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub name: Option<String>,
    pub seed: u64,
    pub steps: u32,
    pub groups: u32,
    pub rollouts: u32,
    pub pool: Option<u32>,
    pub max_age: u32,
    pub order: Order,
    /// Each prompt's length, in tokens.
    pub lengths: Vec<u32>,
    /// Columns of the data set by name, with one entry per prompt.
    #[serde(default)]
    pub columns: Given,
    /// The length limit of an answer, in tokens.
    pub longest: u32,
    /// The sampling temperature.
    pub temperature: f32,
    /// What a request may choose, if the trainer samples as requests say.
    pub requests: Option<Requests>,
    /// Whether the trainer can train on a rollout again, after an update on it.
    pub replay: bool,
    pub budget: Budget,
    pub advantage: Scale,
    /// Signals that the trainer measures.
    pub signals: Vec<String>,
    /// Number of parameters that compute a token. It determines the token costs that policies see.
    #[serde(default)]
    pub parameters: Option<u64>,
    /// The name of the sampling and training software, for the record.
    pub engine: String,
    /// The model and data of the training, for the record.
    pub training: Option<serde_json::Value>,
    /// The trainer's default geometry of an update, if a batch may change it.
    pub update: Option<Geometry>,
    /// The run's folder, if the run keeps a record.
    pub folder: Option<PathBuf>,
}

/// The budget of a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    rollouts: Option<u64>,
    tokens: Option<u64>,
    step_rollouts: Option<u32>,
    rounds: u32,
}

/// What a request may choose, as in a config's `[requests]`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// The lowest and the highest temperature; none for the run's own.
    temperature: Option<[f32; 2]>,
    /// The smallest length limit, in tokens; none for the run's own.
    least_tokens: Option<u32>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { rollouts: None, tokens: None, step_rollouts: None, rounds: 10 }
    }
}

impl Setup {
    /// Checks that the setup is valid.
    pub fn check(&self) -> Result<()> {
        let budget = &self.budget;
        let positive = [
            ("steps", u64::from(self.steps)),
            ("groups", u64::from(self.groups)),
            ("rollouts", u64::from(self.rollouts)),
            ("pool", self.pool.map_or(1, u64::from)),
            ("longest", u64::from(self.longest)),
            ("budget.rollouts", budget.rollouts.unwrap_or(1)),
            ("budget.tokens", budget.tokens.unwrap_or(1)),
            ("budget.step_rollouts", budget.step_rollouts.map_or(1, u64::from)),
            ("budget.rounds", u64::from(budget.rounds)),
            ("parameters", self.parameters.unwrap_or(1)),
            ("update.mini_batch", self.update.map_or(1, |update| u64::from(update.mini_batch))),
            ("update.passes", self.update.map_or(1, |update| u64::from(update.passes))),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Exception::new(format!("`{key}` is 0; it is at least 1")));
        }
        if self.lengths.is_empty() {
            return Err(Exception::new("`lengths` is empty: there is no prompt to sample"));
        }
        if self.columns.contains_key(LENGTH) {
            let what = "`columns` has `length`, which is the prompts' lengths in tokens: `lengths`";
            return Err(Exception::new(what));
        }
        let epsilon = self.advantage.epsilon;
        if !(epsilon.is_finite() && epsilon >= 0.0) {
            let what = format!("`advantage.epsilon` is {epsilon}; it is finite and not negative");
            return Err(Exception::new(what));
        }
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            let what = format!("`temperature` is {}; it is finite and not negative", self.temperature);
            return Err(Exception::new(what));
        }
        self.requests.map_or(Ok(()), |requests| requests.check(self.sampling()))
    }

    /// Returns the settings of rollouts whose request chooses none.
    fn sampling(&self) -> SamplerSettings {
        SamplerSettings { temperature: self.temperature, max_tokens: self.longest, max_turns: 1 }
    }

    /// Returns the terms of sampling and training, as far as the trainer gives them.
    pub fn terms(&self, policy: &Loaded) -> Result<Terms> {
        let wanted = (policy.name(), policy.policy.description().columns.as_slice());
        let columns = columns::wanted(wanted, &self.columns, Some(&self.lengths), self.lengths.len() as u32)?;
        let (mut needs, update) = (vec![Need::AnyPrompt, Need::Stopping], self.update);
        needs.extend(update.map(|_| Need::Updating));
        needs.extend(self.requests.map(|_| Need::Sampling));
        needs.extend(self.replay.then_some(Need::Replay));
        let (max_tokens, temperature) = (self.longest, self.temperature);
        let requests = self.requests.map(|requests| requests.range(self.sampling()));
        let terms = Terms { max_tokens, temperature, requests, needs, columns, ..Terms::default() };
        let update = update.unwrap_or(terms.update);
        let costs =
            self.parameters.map(|n| TokenCosts::of_parameters(n, update.passes, &self.lengths, self.longest));
        Ok(Terms { update, costs: costs.unwrap_or_default(), ..terms })
    }

    /// Returns the run as the policy sees it.
    pub fn run(&self, settings: Vec<(String, Value)>) -> Run {
        Run {
            settings,
            prompts: self.lengths.len() as u32,
            steps: self.steps,
            groups: self.groups,
            rollouts: self.rollouts,
            pool: self.pool.unwrap_or(self.groups.saturating_mul(4)),
            max_age: self.max_age,
            lag: 0,
            terms: None,
        }
    }

    /// Returns the ledger's limits.
    pub fn limits(&self) -> Limits {
        let Budget { rounds, step_rollouts, .. } = self.budget;
        let default = || Limits::rollouts_of_step(rounds, self.groups, self.rollouts);
        Limits {
            rounds,
            step_rollouts: Some(step_rollouts.unwrap_or_else(default)),
            run_rollouts: self.budget.rollouts,
            run_tokens: self.budget.tokens,
            longest: self.longest,
        }
    }

    /// Returns the record's first line for a run under a policy with this first state.
    pub fn head(&self, policy: &Loaded, run: Run, state: &[u8]) -> Box<Head> {
        let lengths: Vec<u8> = self.lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        Box::new(Head {
            format: allot_record::FORMAT,
            allot: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.clone(),
            policy: policy.stamp(),
            engine: self.engine.clone(),
            signals: policy.policy.description().signals.clone(),
            seed: self.seed,
            order: self.order,
            run,
            retries: 0,
            limits: self.limits(),
            ceilings: Ceilings::default(),
            caps: policy.caps(),
            state: hex(state),
            accuracy: None,
            scores: Vec::new(),
            advantage: Some(self.advantage),
            training: self.training.clone(),
            lengths: Some(sha256(lengths)),
            world: None,
        })
    }
}

impl Requests {
    /// Returns the range that a request may choose from, for these settings of the run.
    fn range(self, run: SamplerSettings) -> SamplerRange {
        SamplerRange::around(run, self.temperature, self.least_tokens, None)
    }

    /// Checks that the run's own settings are within the range.
    fn check(self, run: SamplerSettings) -> Result<()> {
        let range = self.range(run);
        let SamplerRange { least, most } = range;
        if !range.has_temperature(run.temperature) {
            let (low, high, own) = (least.temperature, most.temperature, run.temperature);
            let what = format!("`requests.temperature` is [{low}, {high}]");
            let hint = format!(
                "give the lowest, above 0, and the highest, with the run's `temperature`, {own}, between"
            );
            return Err(Exception::new(what).hint(hint));
        }
        if !(1..=most.max_tokens).contains(&least.max_tokens) {
            let (least, most) = (least.max_tokens, most.max_tokens);
            let what = format!("`requests.least_tokens` is {least}");
            return Err(Exception::new(what).hint(format!("it is from 1 to `longest`, {most}")));
        }
        Ok(())
    }
}
