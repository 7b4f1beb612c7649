//! The existing comparison of a folder: its config section, its arms, and its runs' configs.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_config::compare::{Arm, CompareConfig};
use toml::Table;

use crate::planned::config_of;

/// The config of a comparison in its folder. It is written last and marks the rest as complete.
pub const CONFIG: &str = "compare.toml";

/// The existing comparison of a folder.
pub struct Before {
    /// Its section of the config.
    pub section: CompareConfig,
    /// Its arms: folder names and display names.
    pub arms: Vec<(String, String)>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// The configs of its runs.
    pub configs: Vec<PathBuf>,
}

impl Before {
    /// Returns the comparison in a folder, if there is one.
    pub fn in_folder(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(CONFIG);
        if path.exists() { Self::of(&allot_config::read(&path)?, &path, folder).map(Some) } else { Ok(None) }
    }

    /// Returns whether it has an arm with this name.
    pub fn has(&self, arm: &Arm) -> bool {
        self.arms.iter().any(|(name, _)| *name == arm.name)
    }

    /// Parses its config, which is at this path.
    pub fn of(text: &str, path: &Path, folder: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let whole: Table = allot_config::parse(text, &name)?;
        let section = section_of(&whole, &name)?;
        let first = whole.get("run").and_then(|run| run.get("seed")).and_then(toml::Value::as_integer);
        let seeds =
            section.seeds(first.and_then(|seed| u64::try_from(seed).ok()).ok_or_else(|| damaged(&name))?);
        let arms = section.arms(&whole, &name)?;
        let of = |seed: u64| arms.iter().map(move |arm| config_of(folder, Path::new(&arm.name), seed));
        let configs = seeds.iter().copied().flat_map(of).collect();
        let arms = arms.iter().map(|arm| (arm.name.clone(), arm.shown.clone())).collect();
        Ok(Self { section, arms, seeds, configs })
    }
}

/// Returns the comparison section of a config that must have one.
pub fn section_of(whole: &Table, name: &str) -> Result<CompareConfig> {
    let section = whole.get("compare").and_then(|section| section.clone().try_into().ok());
    section.ok_or_else(|| damaged(name))
}

fn damaged(name: &str) -> Error {
    Error::new(format!("`{name}` is no longer a valid config of a comparison"))
}
