//! A run's constants, as a policy sees them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Columns, Geometry, TokenCosts};

/// The constants of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Every setting that the policy described, in that order, with its value in this run.
    pub settings: Vec<(String, Value)>,
    /// Prompts in the data set.
    pub prompts: u32,
    /// Steps planned.
    pub steps: u32,
    /// Groups per update for a uniform policy.
    pub groups: u32,
    /// Rollouts per group for a uniform policy.
    pub rollouts: u32,
    /// Number of prompts in each view's pool, if the data set has enough prompts.
    pub pool: u32,
    /// The maximum age of a buffered rollout, in model updates. Older rollouts are discarded.
    pub max_age: u32,
    /// Steps that may await their updates during sampling. 0 means that sampling and training alternate.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub lag: u32,
    /// How the run samples and trains, if the policy's contract includes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
}

impl Run {
    /// Returns the names of the reward components, if the policy is shown them. Their values follow the
    /// signals of each rollout.
    pub fn parts(&self) -> &[String] {
        self.terms.as_ref().map_or(&[], |terms| &terms.parts)
    }

    /// Returns whether the policy named `need` and the run supports it.
    pub fn gives(&self, need: Need) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.needs.contains(&need))
    }

    /// Returns the range of sampler settings that a request may choose, if the policy may choose.
    pub fn requests(&self) -> Option<SamplerRange> {
        self.terms.as_ref().filter(|_| self.gives(Need::Sampling)).and_then(|terms| terms.requests)
    }

    /// Returns the data set's columns that the policy is shown.
    pub fn columns(&self) -> Columns {
        self.terms.as_ref().map_or_else(Columns::default, |terms| terms.columns.clone())
    }

    /// Returns the number of prompts in the data set, if the policy may request any of them.
    pub fn any_prompt(&self) -> Option<u32> {
        self.gives(Need::AnyPrompt).then_some(self.prompts)
    }

    /// Returns the largest number of passes that a batch may request.
    pub fn most_passes(&self) -> u32 {
        self.terms.as_ref().map_or(1, |terms| terms.update.passes)
    }
}

/// Sampler settings that a request may choose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplerSettings {
    /// Divisor of the logits.
    pub temperature: f32,
    /// The longest answer, in tokens. At least 1.
    pub max_tokens: u32,
    /// The largest number of an episode's turns. At least 1; 1 for single answers.
    #[serde(default = "one", skip_serializing_if = "crate::is_one")]
    pub max_turns: u32,
}

fn one() -> u32 {
    1
}

/// The range of sampler settings that requests may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplerRange {
    /// The lowest values.
    pub least: SamplerSettings,
    /// The highest values.
    pub most: SamplerSettings,
}

impl SamplerRange {
    /// Returns the range around a run's own settings. What is not given stays the run's own, and the run's limits are the
    /// largest.
    pub fn around(
        run: SamplerSettings,
        temperatures: Option<[f32; 2]>,
        least_tokens: Option<u32>,
        least_turns: Option<u32>,
    ) -> Self {
        let [lowest, highest] = temperatures.unwrap_or([run.temperature; 2]);
        let least = SamplerSettings {
            temperature: lowest,
            max_tokens: least_tokens.unwrap_or(run.max_tokens),
            max_turns: least_turns.unwrap_or(run.max_turns),
        };
        Self { least, most: SamplerSettings { temperature: highest, ..run } }
    }

    /// Whether all its temperatures are positive and finite, and the run's own is among them.
    pub fn has_temperature(&self, own: f32) -> bool {
        let (low, high) = (self.least.temperature, self.most.temperature);
        low > 0.0 && high.is_finite() && (low..=high).contains(&own)
    }
}

/// How a run samples, rewards and trains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The sampling temperature.
    pub temperature: f32,
    /// The length limit of answers, in tokens.
    pub max_tokens: u32,
    /// The limit of an episode's turns; 1 for single answers.
    #[serde(default = "one", skip_serializing_if = "crate::is_one")]
    pub max_turns: u32,
    /// The range that requests may choose temperature and length limit from, if the policy may choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<SamplerRange>,
    /// How updates are made if a batch does not say otherwise.
    #[serde(flatten)]
    pub update: Geometry,
    /// The cost of a token.
    #[serde(default, skip_serializing_if = "TokenCosts::are_none")]
    pub costs: TokenCosts,
    /// Names of the reward components, if the policy is shown them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// The policy's needs. The run supports all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// The data set's columns that the policy is shown. In the record, each is a line of its own.
    #[serde(skip)]
    pub columns: Columns,
}

impl Terms {
    /// Returns the sampler settings for requests that set none.
    pub fn sampling(&self) -> SamplerSettings {
        let Self { temperature, max_tokens, max_turns, .. } = *self;
        SamplerSettings { temperature, max_tokens, max_turns }
    }
}

/// A feature that a policy uses and that some runs do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Requests for prompts that are neither on offer nor buffered.
    AnyPrompt,
    /// Rollouts that stay buffered after an update on them.
    Replay,
    /// Requests with their own sampler settings.
    Sampling,
    /// Requests with `until`, which may end early.
    Stopping,
    /// Batches with their own update geometry.
    Updating,
    /// The reward components of each rollout.
    Parts,
    /// The turns of each rollout, and advantages by turn.
    Turns,
    /// Requests whose rollouts continue others.
    Starting,
}

/// A hint followed by the code that names a need in each SDK.
macro_rules! naming {
    ($what:literal, $name:literal, $upper:literal, $camel:literal) => {
        concat!(
            $what,
            ": in Python `needs = [\"",
            $name,
            "\"]`, in JavaScript `export const needs = [\"",
            $name,
            "\"]`, in Rust `const NEEDS: Needs = Needs::",
            $upper,
            "`, in C `allot_needs(self, ALLOT_",
            $upper,
            ")`, in Go `Needs: allot.Need",
            $camel,
            "`"
        )
    };
}
pub(crate) use naming;

impl Need {
    /// Returns the hint that shows how to name this need in each SDK's language.
    pub fn hint(self) -> &'static str {
        match self {
            Self::AnyPrompt => naming!("name the need", "any-prompt", "ANY_PROMPT", "AnyPrompt"),
            Self::Replay => naming!("name the need", "replay", "REPLAY", "Replay"),
            Self::Sampling => naming!("name the need", "sampling", "SAMPLING", "Sampling"),
            Self::Stopping => naming!("name the need", "stopping", "STOPPING", "Stopping"),
            Self::Updating => naming!("name the need", "updating", "UPDATING", "Updating"),
            Self::Parts => naming!("name the need", "parts", "PARTS", "Parts"),
            Self::Turns => naming!("name the need", "turns", "TURNS", "Turns"),
            Self::Starting => naming!("name the need", "starting", "STARTING", "Starting"),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnyPrompt => "any-prompt",
            Self::Replay => "replay",
            Self::Sampling => "sampling",
            Self::Stopping => "stopping",
            Self::Updating => "updating",
            Self::Parts => "parts",
            Self::Turns => "turns",
            Self::Starting => "starting",
        })
    }
}

impl Default for Terms {
    /// The terms of a run that states none.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            max_tokens: u32::MAX,
            max_turns: 1,
            requests: None,
            update: Geometry { mini_batch: u32::MAX, passes: 1 },
            costs: TokenCosts::default(),
            parts: Vec::new(),
            needs: Vec::new(),
            columns: Columns::default(),
        }
    }
}

/// The value of a policy's setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Integer(i32),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Value {
    /// Returns the kind of the value, as words for an error message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "true or false",
            Self::Integer(_) => "a whole number from -2147483648 to 2147483647",
            Self::Number(_) => "a finite number",
            Self::Text(_) => "text",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(v) => write!(f, "{v}"),
            Self::Integer(v) => write!(f, "{v}"),
            // `{:?}` prints 1.0 with its decimal point, so that it differs from the integer 1.
            Self::Number(v) => write!(f, "{v:?}"),
            Self::Text(v) => write!(f, "{v:?}"),
        }
    }
}
