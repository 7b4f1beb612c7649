//! A comparison's config: what is compared, and the budget of each run.

use std::path::Path;

use allot_base::{Error, Result};
use allot_config::compare::{Arm, CompareConfig};
use allot_config::simulate::SimulateConfig;
use allot_config::train::{ModelConfig, TrainConfig};
use allot_engine::tensors::DeviceName;
use allot_report::Axis;
use toml::Table;

use super::before::{Before, section_of};
use super::builds;
use crate::planned::RunKind;
use crate::until::Means;

/// A comparison's config.
pub struct Declared {
    /// Its name in an error.
    pub name: String,
    /// The config.
    pub whole: Table,
    /// The config as text.
    pub text: String,
    /// Its section `[compare]`.
    pub section: CompareConfig,
    /// The kind of its runs.
    pub kind: RunKind,
    /// The seed of its section `[run]`.
    pub seed: u64,
    /// The comparison's seeds.
    pub seeds: Vec<u64>,
    /// The budget of each run.
    pub means: Means,
    /// Whether its runs train on a GPU.
    pub gpu: bool,
    /// Notes about the configs that it is based on.
    pub notes: Vec<String>,
}

impl Declared {
    /// Reads a config with overrides from the command line.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self> {
        let tree = allot_config::open(path, overrides)?;
        let (name, whole, text) = (tree.name().to_owned(), tree.table()?, tree.text()?.into_owned());
        let simulated = whole.contains_key("world") || whole.contains_key("bank");
        let kind = if simulated { RunKind::Simulate } else { RunKind::Train };
        // Parsed from the tree, so that errors have line numbers of the file.
        let (section, run, budget, gpu) = match kind {
            RunKind::Train => {
                let config = TrainConfig::of(&tree)?;
                (config.compare, config.run, config.budget, config.model.device != DeviceName::Cpu)
            }
            RunKind::Simulate => {
                let config = SimulateConfig::of(&tree)?;
                (config.compare, config.run, config.budget, false)
            }
        };
        let Some(section) = section else {
            let error = Error::new(format!("`{name}` has no section [compare]"));
            return Err(error.hint("add it, as `allot configs compare-tiny` has it"));
        };
        let unknown = simulated && matches!(section.axis, Some(Axis::Flops | Axis::Seconds));
        if let Some(axis) = section.axis.filter(|_| unknown) {
            let what =
                format!("`{name}`: `compare.axis` is `{}`, which a simulation does not measure", axis.key());
            return Err(Error::new(what));
        }
        let (seed, seeds) = (run.seed, section.seeds(run.seed));
        let (means, notes) = (Means { budget, steps: run.steps }, tree.notes().collect());
        Ok(Self { name, whole, text, section, kind, seed, seeds, means, gpu, notes })
    }

    /// Returns its arms. Arms named after files keep their names in the comparison in `folder`.
    pub fn arms(&mut self, folder: &Path, before: Option<&Before>) -> Result<Vec<Arm>> {
        let arms = self.section.arms(&self.whole, &self.name)?;
        let Some(before) = before else { return Ok(arms) };
        if !builds::name(&mut self.whole, &self.section, &arms, folder, before) {
            return Ok(arms);
        }
        let text = toml::to_string(&self.whole);
        self.text = text.map_err(|e| Error::new(format!("could not write the config: {e}")))?;
        self.section = section_of(&self.whole, &self.name)?;
        self.section.arms(&self.whole, &self.name)
    }

    /// Returns the threads of each run: as in its existing runs, as in the config, or else `free`.
    pub fn threads(&self, kept: Option<&ModelConfig>, free: Option<usize>) -> Result<usize> {
        if self.kind == RunKind::Simulate {
            return Ok(1);
        }
        let given = self.whole.get("model").and_then(|m| m.get("threads")).and_then(toml::Value::as_integer);
        let given = given.map(|n| n.max(1) as usize);
        kept.and_then(|kept| kept.threads).or(given).or(free).ok_or_else(|| {
            let what = format!("`{}` does not set how many threads a run takes on a node", self.name);
            Error::new(what).hint("set `model.threads`: the cores of this machine are not a cluster's")
        })
    }
}
