//! The configs of a comparison's runs: where they are, and what they say.

use std::path::Path;

use allot_base::{Error, Result};
use allot_config::simulate::SimulateConfig;
use allot_config::train::{ModelConfig, TrainConfig};
use allot_models::chat::{Date, may_ask_for_date};
use toml::Table;

use crate::planned::{PlannedRun, RunKind};
use crate::{checkpoint, run_dir};

/// What all runs of a comparison have in common, whenever and wherever they begin.
#[derive(Clone, Copy)]
pub struct RunDefaults {
    /// Threads that each takes.
    pub threads: usize,
    /// The day, for runs whose model may ask for it.
    pub date: Date,
}

/// The text of a run's config, with whole paths, threads and date. `name` is the config's in an error.
pub fn settled(
    run: &PlannedRun,
    kind: RunKind,
    table: &Table,
    name: &str,
    defaults: RunDefaults,
) -> Result<String> {
    let text = toml::to_string(table).map_err(|e| Error::new(format!("could not write a config: {e}")))?;
    match kind {
        RunKind::Train => {
            let mut config = TrainConfig::parse(&text, name)?;
            config.model.threads.get_or_insert(defaults.threads);
            config.settle()?;
            if config.model.date.is_none() {
                config.model.date = match model_of(&run.config) {
                    Some(kept) => kept.date,
                    None => allot_models::find(&config.model.source)
                        .is_ok_and(|model| may_ask_for_date(&model))
                        .then_some(defaults.date),
                };
            }
            config.policy.pin();
            run_dir::text(&config)
        }
        RunKind::Simulate => {
            let mut config = SimulateConfig::parse(&text, name)?;
            config.settle()?;
            let bank = config.bank.as_ref().map(|bank| checkpoint::sha256(Path::new(&bank.file)));
            config.pin(bank.transpose()?);
            run_dir::text(&config)
        }
    }
}

/// A run's config without its name and without the settings that were written out.
pub fn bare(text: &str) -> Option<Table> {
    let mut config: Table = toml::from_str(text).ok()?;
    config.get_mut("run")?.as_table_mut()?.remove("name");
    config.get_mut("policy")?.as_table_mut()?.remove("settings");
    Some(config)
}

/// A run's config as this version of the program would write it: keys that came since are in it.
pub fn anew(kind: RunKind, text: &str, name: &str) -> Result<String> {
    match kind {
        RunKind::Train => run_dir::text(&TrainConfig::parse(text, name)?),
        RunKind::Simulate => run_dir::text(&SimulateConfig::parse(text, name)?),
    }
}

/// The model of a run's config, if the config has been written.
pub fn model_of(config: &Path) -> Option<ModelConfig> {
    let text = std::fs::read_to_string(config).ok()?;
    Some(TrainConfig::parse(&text, "").ok()?.model)
}
