//! The config of `allot grade`: the sections of a training config that rewards depend on. Ignores others.

use allot_base::{Error, Result};
use allot_settings::RewardConfig;
use serde::Deserialize;

use crate::Tree;

/// The sections that rewards depend on.
#[derive(Clone, Debug, Deserialize)]
pub struct GradeConfig {
    /// The section `[reward]`.
    pub reward: RewardConfig,
    /// The section `[sampling]`, for a penalty on long answers.
    #[serde(default)]
    pub sampling: LengthLimit,
}

/// The keys of `[sampling]` that rewards depend on.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct LengthLimit {
    /// The length limit of an answer, in tokens.
    pub max_tokens: Option<u32>,
}

impl GradeConfig {
    /// Reads a config from its tree, checks it, and makes its paths absolute.
    ///
    /// # Errors
    ///
    /// The section `[reward]` is missing, or a training run would refuse it.
    pub fn of(tree: &Tree) -> Result<Self> {
        let mut config: Self = tree.config()?;
        let penalized = config.reward.overlong.is_some()
            || config.reward.graders.iter().any(|one| one.overlong.is_some());
        if penalized && config.sampling.max_tokens.is_none() {
            let what = format!("`{}` has `reward.overlong` but no `sampling.max_tokens`", tree.name());
            return Err(
                Error::new(what).hint("Set `max_tokens` under [sampling]: the penalty depends on it.")
            );
        }
        config.reward.check(tree.name(), config.longest())?;
        config.reward.settle()?;
        Ok(config)
    }

    /// Returns the length limit of an answer, in tokens.
    pub fn longest(&self) -> u32 {
        self.sampling.max_tokens.unwrap_or(u32::MAX)
    }
}
