//! The config of a simulated run.

use std::path::Path;

use allot_allocation::advantage::Scale;
use allot_engine::CoinConfig;
use serde::{Deserialize, Serialize};

use super::{BudgetConfig, PolicyConfig, RunConfig};
use crate::trouble::Result;

/// A simulated run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulateConfig {
    /// The run's constants.
    pub run: RunConfig,
    /// What it may spend.
    pub budget: BudgetConfig,
    /// Who decides.
    pub policy: PolicyConfig,
    /// How rewards become advantages.
    #[serde(default)]
    pub advantage: Scale,
    /// When the score is taken.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// The coin-flip world.
    #[serde(default)]
    pub world: CoinConfig,
}

/// When the score is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Every so many steps. The start and the end are always scored.
    pub every: u32,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self { every: 10 }
    }
}

impl SimulateConfig {
    /// Reads and checks a config file.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&super::read(path)?, &path.display().to_string())
    }

    /// Reads and checks a config; `name` is what it is called in an error.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let config: Self = super::parse(text, name)?;
        let every = ("evaluation.every", u64::from(config.evaluation.every));
        super::check(name, &config.run, &config.budget, &config.policy, config.advantage, &[every])?;
        Ok(config)
    }
}
