//! `[environment]` of a config: rollouts of several turns.

use allot_tasks::environment::Embedded;
use serde::{Deserialize, Serialize};

/// The environment of a run's rollouts, and the limits of an episode. `sampling.max_tokens` limits the tokens that are
/// generated in all turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSettings {
    /// The environment.
    #[serde(rename = "use")]
    pub embedded: Embedded,
    /// Most turns of the model in an episode.
    #[serde(default = "turns")]
    pub max_turns: u32,
    /// Most tokens that an episode reads from its environment.
    #[serde(default = "read")]
    pub max_read_tokens: u32,
}

fn turns() -> u32 {
    16
}

fn read() -> u32 {
    256
}
