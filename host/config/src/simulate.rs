//! The config of a simulated run.

use std::path::Path;

use allot_allocation::advantage::Scale;
use allot_allocation::{Every, Need, SamplerSettings, Terms};
use allot_base::{Error, Result, settle};
use allot_settings::CoinConfig;
use serde::{Deserialize, Serialize};

use super::compare::CompareConfig;
use super::requests::RequestsConfig;
use super::{BudgetConfig, PolicyConfig, RunConfig, Tree};

/// A simulated run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulateConfig {
    /// Seed, steps and group geometry.
    pub run: RunConfig,
    /// The budget.
    pub budget: BudgetConfig,
    /// The policy.
    pub policy: PolicyConfig,
    /// How rewards become advantages.
    #[serde(default)]
    pub advantage: Scale,
    /// When accuracy is measured.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// The sampling settings that a policy may choose by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsConfig>,
    /// The coin-flip world.
    #[serde(default)]
    pub world: CoinConfig,
    /// A bank of recorded rollouts, instead of the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<BankConfig>,
    /// The comparison, for `allot compare`; ignored by a single run.
    #[serde(default, skip_serializing)]
    pub compare: Option<CompareConfig>,
}

/// A bank of recorded rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankConfig {
    /// The bank's file: written by `allot bank`, or readable by it.
    pub file: String,
    /// The hash that the file must have, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl BankConfig {
    /// Returns the config of the bank in this file.
    pub fn of(file: &Path) -> Self {
        Self { file: file.display().to_string(), sha256: None }
    }
}

/// When accuracy is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Steps between evaluations, by default ten. The start and the end are always evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Instead: rollouts between evaluations. Evaluates policies of any step size equally often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_rollouts: Option<u64>,
    /// Instead: generated tokens between evaluations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_tokens: Option<u64>,
    /// With `every_rollouts`: the next evaluation is after this share of the rollouts so far, if more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<f64>,
}

impl EvaluationConfig {
    /// Returns when accuracy is measured. `name` names the config in errors.
    pub fn when(&self, name: &str) -> Result<Every> {
        super::every(name, self.every, self.every_rollouts, self.every_tokens, self.growth)
    }
}

impl SimulateConfig {
    /// Reads and checks a config. `name` names it in errors.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        Self::of(&Tree::parse(text, name, &[])?)
    }

    /// Returns the terms of sampling and training, for answers of at most `longest` tokens.
    pub fn terms(&self, longest: u32) -> Terms {
        let mut needs = vec![Need::AnyPrompt, Need::Replay, Need::Stopping, Need::Updating];
        needs.extend(self.requests.map(|_| Need::Sampling));
        let episodes = self.bank.is_none() && self.world.turns > 1;
        needs.extend([Need::Turns, Need::Starting].into_iter().filter(|_| episodes));
        let max_turns = if episodes { self.world.turns } else { 1 };
        let requests = self.requests.map(|requests| requests.range(self.sampling()));
        Terms { max_tokens: longest, max_turns, requests, needs, ..Terms::default() }
    }

    /// Returns the sampling settings of requests that choose none.
    fn sampling(&self) -> SamplerSettings {
        SamplerSettings { temperature: 1.0, max_tokens: self.world.longest, max_turns: self.world.turns }
    }

    /// Makes the config's paths absolute.
    pub fn settle(&mut self) -> Result<()> {
        self.policy.settle()?;
        self.bank.as_mut().map_or(Ok(()), |bank| settle(&mut bank.file))
    }

    /// Stores the current hashes of the user's files in the config. `sha256` is the bank's hash.
    pub fn pin(&mut self, sha256: Option<String>) {
        self.policy.pin();
        if let Some(bank) = &mut self.bank {
            bank.sha256 = bank.sha256.take().or(sha256);
        }
    }

    /// Reads a config from its tree and checks it.
    pub fn of(tree: &Tree) -> Result<Self> {
        let (mut config, name): (Self, _) = (tree.config()?, tree.name());
        config.budget.settle(&config.run);
        super::check(name, &config.run, &config.budget, &config.policy, config.advantage, &[])?;
        if config.budget.flops.is_some() {
            let error =
                Error::new(format!("`{name}`: `budget.flops` has no effect: a simulation has no model"));
            return Err(error.hint("set `rollouts` or `tokens`"));
        }
        config.evaluation.when(name)?;
        config.check_bank(name)?;
        config.requests.map_or(Ok(()), |requests| {
            requests.check(name, config.sampling(), ["world.longest", "world.turns"])
        })?;
        config.compare.as_ref().map_or(Ok(()), |compare| compare.check(name))?;
        Ok(config)
    }

    /// Refuses settings that a bank does not support.
    pub fn check_bank(&self, name: &str) -> Result<()> {
        if self.bank.is_some() && self.requests.is_some() {
            let what =
                format!("`{name}` has [bank] and [requests], but a bank's rollouts are already sampled");
            return Err(Error::new(what).hint("leave [requests] out"));
        }
        Ok(())
    }
}
