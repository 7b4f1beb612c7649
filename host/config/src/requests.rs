//! `[requests]` of a config: the sampling settings that a policy may choose by request.

use allot_allocation::{SamplerRange, SamplerSettings};
use allot_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The ranges of sampling settings that a request may choose. Without this section it may choose none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestsConfig {
    /// The lowest and the highest temperature. By default only the run's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<[f32; 2]>,
    /// The smallest length limit, in tokens. By default the run's own, which is always the largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_tokens: Option<u32>,
    /// The smallest limit of an episode's turns. By default the run's own, which is always the largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_turns: Option<u32>,
}

impl RequestsConfig {
    /// Returns the range of settings that a request may choose, for these settings of the run.
    pub fn range(self, run: SamplerSettings) -> SamplerRange {
        SamplerRange::around(run, self.temperature, self.least_tokens, self.least_turns)
    }

    /// Checks the section for these settings of the run. `name` names the config in errors, and `keys` are
    /// those of the run's limits of tokens and of turns.
    pub fn check(self, name: &str, run: SamplerSettings, keys: [&str; 2]) -> Result<()> {
        let range = self.range(run);
        let SamplerRange { least, most } = range;
        if !range.has_temperature(run.temperature) {
            let (low, high, own) = (least.temperature, most.temperature, run.temperature);
            let what = format!("`{name}`: `requests.temperature` is [{low}, {high}]");
            let hint = format!(
                "set it to the lowest temperature, above 0, and the highest, with the run's own {own} between them"
            );
            return Err(Error::new(what).hint(hint));
        }
        if !(1..=most.max_tokens).contains(&least.max_tokens) {
            let (least, most) = (least.max_tokens, most.max_tokens);
            let what = format!("`{name}`: `requests.least_tokens` is {least}; expected 1 to {most}");
            return Err(Error::new(what).hint(format!("set it to at most `{}`", keys[0])));
        }
        if !(1..=most.max_turns).contains(&least.max_turns) {
            let (least, most) = (least.max_turns, most.max_turns);
            let what = format!("`{name}`: `requests.least_turns` is {least}; expected 1 to {most}");
            let hint = match most {
                1 => "leave it out; rollouts are single answers".to_owned(),
                _ => format!("set it to at most `{}`", keys[1]),
            };
            return Err(Error::new(what).hint(hint));
        }
        Ok(())
    }
}
