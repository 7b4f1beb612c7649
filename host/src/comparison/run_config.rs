//! The configs of a comparison's runs.

use std::path::Path;

use allot_base::{Error, Result};
use allot_config::simulate::SimulateConfig;
use allot_config::train::{ModelConfig, TrainConfig};
use allot_models::chat::{Date, may_ask_for_date};
use toml::Table;

use crate::planned::{PlannedRun, RunKind};
use crate::{checkpoint, run_dir};

/// Settings that all runs of a comparison share, whenever and wherever they start.
#[derive(Clone, Copy)]
pub struct RunDefaults {
    /// Threads of each run.
    pub threads: usize,
    /// The date, for runs whose prompts contain it.
    pub date: Date,
}

/// Returns a run's config as text, with absolute paths, threads and date. `name` is for errors.
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

/// Returns a run's config without its name and its expanded settings.
pub fn bare(text: &str) -> Option<Table> {
    let mut config: Table = toml::from_str(text).ok()?;
    config.get_mut("run")?.as_table_mut()?.remove("name");
    config.get_mut("policy")?.as_table_mut()?.remove("settings");
    Some(config)
}

/// Returns a run's config as this version of the program writes it, including newer keys.
pub fn anew(kind: RunKind, text: &str, name: &str) -> Result<String> {
    match kind {
        RunKind::Train => run_dir::text(&TrainConfig::parse(text, name)?),
        RunKind::Simulate => run_dir::text(&SimulateConfig::parse(text, name)?),
    }
}

/// Returns the model of a run's config, if the config exists.
pub fn model_of(config: &Path) -> Option<ModelConfig> {
    let text = std::fs::read_to_string(config).ok()?;
    Some(TrainConfig::parse(&text, "").ok()?.model)
}
