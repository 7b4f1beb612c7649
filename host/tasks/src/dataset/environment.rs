//! Problems that an environment makes: a package of Python, which judges answers to them, too. Here is only what a config
//! says of it; who runs the package makes files of rows out of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The environment that makes the rows of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentConfig {
    /// Which one it is.
    #[serde(rename = "use")]
    pub package: Package,
    /// Its tasks: reasoning-gym's by their names, task sets of verifiers by their ids.
    pub tasks: Vec<EnvironmentTask>,
    /// Problems of each task; by default 500 of reasoning-gym's, and all of a task set that has an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// What the problems are drawn from; by default 0 for reasoning-gym, and a task set's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Of an answer only the content of the last tag of this name is judged. For reasoning-gym.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// A package of environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Package {
    /// reasoning-gym: problems that are generated, with a scorer for each task.
    ReasoningGym,
    /// verifiers: task sets with rewards, and judges among these.
    Verifiers,
}

/// A task, by its name alone or with settings of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a task's name, or a table with `name` and its settings")]
pub enum EnvironmentTask {
    /// As it is.
    Name(String),
    /// With settings.
    With {
        /// Its name.
        name: String,
        /// Problems of this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<usize>,
        /// Its settings, by name.
        #[serde(flatten)]
        settings: BTreeMap<String, Value>,
    },
}

impl Package {
    /// Its name, which is that of the package.
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
    /// What makes no sense, if anything does: a key, and the rule.
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

    /// What the package is asked to make.
    pub fn request(&self) -> Value {
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
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "seed": self.seed,
            "tag": self.tag,
        })
    }
}
