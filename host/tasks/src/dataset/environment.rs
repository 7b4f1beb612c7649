//! Problems made by an environment: a Python package that also grades answers. This module has only the
//! config of an environment. Its runner turns the package's problems into files of rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The environment that makes the rows of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentConfig {
    /// The package.
    #[serde(rename = "use")]
    pub package: Package,
    /// Its tasks: names in reasoning-gym, ids of task sets in verifiers.
    pub tasks: Vec<EnvironmentTask>,
    /// Problems per task; by default 500 for reasoning-gym, and all of a finite task set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Seed of the problems; by default 0 for reasoning-gym, and a task set's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Only the content of the last tag of this name in an answer is graded. For reasoning-gym.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// A package of environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Package {
    /// reasoning-gym: generated problems, with a scorer for each task.
    ReasoningGym,
    /// verifiers: task sets with rewards, some of them from judges.
    Verifiers,
}

/// A task: its name, or a table with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a task's name, or a table with `name` and its settings")]
pub enum EnvironmentTask {
    /// A task with default settings.
    Name(String),
    /// A task with its own settings.
    With {
        /// Its name.
        name: String,
        /// Problems of this task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<usize>,
        /// Its settings, by name.
        #[serde(flatten)]
        settings: BTreeMap<String, Value>,
    },
}

impl Package {
    /// Name of the package.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReasoningGym => "reasoning-gym",
            Self::Verifiers => "verifiers",
        }
    }

    /// The version that this program is tested with.
    pub fn tested(self) -> &'static str {
        match self {
            Self::ReasoningGym => "0.1.25",
            Self::Verifiers => "0.4.0",
        }
    }
}

impl EnvironmentTask {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::With { name, .. } => name,
        }
    }
}

impl EnvironmentConfig {
    /// Returns the first invalid key and its rule, if there is one.
    pub fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let sizes = self.tasks.iter().map(|task| match task {
            EnvironmentTask::Name(_) => None,
            EnvironmentTask::With { size, .. } => *size,
        });
        if self.tasks.is_empty() {
            return Some(("tasks", "expected at least one task"));
        }
        if sizes.chain([self.size]).any(|size| size == Some(0)) {
            return Some(("size", "expected at least 1"));
        }
        (self.tag.is_some() && self.package == Package::Verifiers)
            .then_some(("tag", "task sets of verifiers parse answers themselves"))
    }

    /// Returns the request to the package, as JSON: for problems, or for episodes.
    pub fn request(&self, episodes: bool) -> Value {
        let task = |task: &EnvironmentTask| match task {
            EnvironmentTask::Name(name) => {
                serde_json::json!({ "name": name, "settings": {}, "size": self.size })
            }
            EnvironmentTask::With { name, size, settings } => {
                serde_json::json!({ "name": name, "settings": settings, "size": size.or(self.size) })
            }
        };
        serde_json::json!({
            "environment": self.package.name(),
            "episodes": episodes,
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "seed": self.seed,
            "tag": self.tag,
        })
    }
}
