//! `[world]` of a config: the coin-flip world of simulations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The coin-flip world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoinConfig {
    /// Prompts to train on.
    pub prompts: u32,
    /// Held-out problems, for accuracy.
    pub held_out: u32,
    /// Mean difficulty, in logits. At 0, half of all answers are correct at the start.
    pub difficulty: f64,
    /// Standard deviation of the difficulty, in logits.
    pub spread: f64,
    /// Effect of a noise-free unit gradient on the ability shared by all prompts, at the start.
    pub transfer: f64,
    /// Upper bound of the shared ability, in logits. The nearer it is, the slower the ability grows.
    pub ceiling: f64,
    /// Effect of a noise-free unit gradient on the prompt's own skill.
    pub memory: f64,
    /// Gradient noise scale, in rollouts with an advantage. An update on a third of it has half the effect
    /// of a noise-free update. At 0, all updates have the same effect, whatever their size.
    pub noise: f64,
    /// Median length of an answer, in tokens.
    pub tokens: f64,
    /// Longest answer, in tokens.
    pub longest: u32,
    /// Most turns of an episode. At 1, rollouts are single answers.
    #[serde(skip_serializing_if = "allot_allocation::is_one")]
    pub turns: u32,
    /// For each column that a policy requests, the world's column to use. By default the same name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// Names of signals drawn for each rollout, uniform from 0 to 1, for tests. Not a key of configs.
    #[serde(skip)]
    pub signals: Vec<String>,
}

impl Default for CoinConfig {
    fn default() -> Self {
        Self {
            prompts: 2000,
            held_out: 500,
            difficulty: 1.0,
            spread: 3.0,
            transfer: 0.3,
            ceiling: 5.0,
            memory: 1.0,
            noise: 500.0,
            tokens: 200.0,
            longest: 1024,
            turns: 1,
            columns: BTreeMap::new(),
            signals: Vec::new(),
        }
    }
}
