//! `[reward.component]` of a config: a grader that is a component.

use std::collections::BTreeMap;
use std::time::Duration;

use allot_component::Caps;
use allot_error::Result;
use allot_files::settle;
use serde::{Deserialize, Serialize};

/// A grader that is a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentConfig {
    /// The component's path, or its address in a registry.
    #[serde(rename = "use", skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Its sha256, if no other will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, toml::Value>,
    /// Wasm instructions for one call. An answer that needs more has no reward.
    #[serde(default = "fuel")]
    pub fuel: u64,
    /// Seconds on the clock for one call, behind the fuel.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Bytes of memory for one call.
    #[serde(default = "memory")]
    pub memory: usize,
}

fn fuel() -> u64 {
    10_000_000_000
}

fn seconds() -> f64 {
    60.0
}

fn memory() -> usize {
    256 << 20
}

impl ComponentConfig {
    /// A component, with the limits that stand where nothing else is said.
    pub fn of(source: &str) -> Self {
        let (source, settings) = (source.to_owned(), BTreeMap::new());
        Self { source, sha256: None, settings, fuel: fuel(), seconds: seconds(), memory: memory() }
    }

    /// Its limits alone, which decide verdicts: a record has them beside who judges, where the component's content and
    /// the settings in force are.
    pub fn identity(&self) -> Self {
        Self { source: String::new(), sha256: None, settings: BTreeMap::new(), ..self.clone() }
    }

    /// A key with a value that it can't have, and the rule.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        if self.fuel == 0 || self.fuel > 1 << 50 {
            return Some(("component.fuel", self.fuel as f64, "it is from 1 to 2^50"));
        }
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            return Some(("component.seconds", self.seconds, "it is more than 0 and at most a day, 86400"));
        }
        if !(65_536..=1 << 32).contains(&self.memory) {
            return Some(("component.memory", self.memory as f64, "it is from 64 KiB, 65536, to 4 GiB"));
        }
        None
    }

    /// Makes a component's path whole.
    ///
    /// # Errors
    ///
    /// A folder at hand that cannot be found.
    pub fn settle(&mut self) -> Result<()> {
        settle(&mut self.source)
    }

    /// What one call may use.
    pub fn caps(&self) -> Caps {
        Caps { fuel: self.fuel, time: Duration::from_secs_f64(self.seconds), memory: self.memory }
    }
}
