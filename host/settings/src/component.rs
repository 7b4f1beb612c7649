//! `[reward.component]` of a config: a grader that is a component.

use std::collections::BTreeMap;
use std::time::Duration;

use allot_base::{Result, settle};
use allot_component::Caps;
use serde::{Deserialize, Serialize};

/// A grader that is a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentConfig {
    /// The component's path, or its address in a registry.
    #[serde(rename = "use", skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The sha256 that the component must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The component's settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, toml::Value>,
    /// Wasm instructions for one call. An answer that needs more has no reward.
    #[serde(default = "fuel")]
    pub fuel: u64,
    /// Wall-clock limit of one call in seconds, in case fuel does not stop it.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Memory for one call, in bytes.
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
    /// Returns the config of a component with the default limits.
    pub fn of(source: &str) -> Self {
        let (source, settings) = (source.to_owned(), BTreeMap::new());
        Self { source, sha256: None, settings, fuel: fuel(), seconds: seconds(), memory: memory() }
    }

    /// Returns only the limits. Verdicts depend on them, so the record stores them along with the grader's
    /// identity, which has the component's hash and settings.
    pub fn identity(&self) -> Self {
        Self { source: String::new(), sha256: None, settings: BTreeMap::new(), ..self.clone() }
    }

    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        if self.fuel == 0 || self.fuel > 1 << 50 {
            return Some(("component.fuel", self.fuel as f64, "expected 1 to 2^50"));
        }
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            return Some(("component.seconds", self.seconds, "expected more than 0 and at most 86400"));
        }
        if !(65_536..=1 << 32).contains(&self.memory) {
            return Some(("component.memory", self.memory as f64, "expected 65536 (64 KiB) to 4 GiB"));
        }
        None
    }

    /// Makes the component's path absolute.
    ///
    /// # Errors
    ///
    /// The working directory cannot be found.
    pub fn settle(&mut self) -> Result<()> {
        settle(&mut self.source)
    }

    /// Returns the limits of one call.
    pub fn caps(&self) -> Caps {
        Caps { fuel: self.fuel, time: Duration::from_secs_f64(self.seconds), memory: self.memory }
    }
}
