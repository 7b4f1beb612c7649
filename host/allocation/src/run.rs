//! A run's constants, as a policy sees them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Columns, Geometry, TokenCosts};

/// The constants of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Every setting that the policy described, in that order, with the value in force.
    pub settings: Vec<(String, Value)>,
    /// Prompts in the data set.
    pub prompts: u32,
    /// Steps planned.
    pub steps: u32,
    /// Groups to train on in each update, as a uniform policy would.
    pub groups: u32,
    /// Rollouts in each group, as a uniform policy would.
    pub rollouts: u32,
    /// Prompts on offer in each view, while the data set lasts.
    pub pool: u32,
    /// The oldest age at which a rollout is still kept, in model updates.
    pub max_age: u32,
    /// Steps that may wait for their updates while the next one is sampled. 0 where sampling and learning take turns.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub lag: u32,
    /// How it samples and learns, where the policy's contract tells of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
}

impl Run {
    /// Names of the parts that rewards are made of, where the policy is shown them: beside each rollout after its
    /// signals.
    pub fn parts(&self) -> &[String] {
        self.terms.as_ref().map_or(&[], |terms| &terms.parts)
    }

    /// Whether the policy has what it needs in this.
    pub fn gives(&self, need: Need) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.needs.contains(&need))
    }

    /// What a request may choose of how it is sampled, where the policy may choose that.
    pub fn requests(&self) -> Option<SamplerRange> {
        self.terms.as_ref().filter(|_| self.gives(Need::Sampling)).and_then(|terms| terms.requests)
    }

    /// The columns of the data set that the policy is shown.
    pub fn columns(&self) -> Columns {
        self.terms.as_ref().map_or_else(Columns::default, |terms| terms.columns.clone())
    }

    /// Prompts in the data set, where the policy may request any of them.
    pub fn any_prompt(&self) -> Option<u32> {
        self.gives(Need::AnyPrompt).then_some(self.prompts)
    }

    /// The most passes that a batch may ask for.
    pub fn most_passes(&self) -> u32 {
        self.terms.as_ref().map_or(1, |terms| terms.update.passes)
    }
}

/// Settings of the sampler, as a request may choose them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplerSettings {
    /// What logits are divided by.
    pub temperature: f32,
    /// The longest answer, in tokens. At least 1.
    pub max_tokens: u32,
}

/// What may be chosen of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplerRange {
    /// What a request may go down to.
    pub least: SamplerSettings,
    /// What a request may go up to.
    pub most: SamplerSettings,
}

/// How a run samples, rewards and learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The temperature of sampling.
    pub temperature: f32,
    /// The longest answer, in tokens.
    pub max_tokens: u32,
    /// What a request may choose of these two, where the policy may choose that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<SamplerRange>,
    /// How updates are made where a batch says nothing else.
    #[serde(flatten)]
    pub update: Geometry,
    /// What a token takes.
    #[serde(default, skip_serializing_if = "TokenCosts::are_none")]
    pub costs: TokenCosts,
    /// Names of the parts that rewards are made of, where the policy is shown them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// What the policy needs, and the run gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// The columns of the data set that the policy is shown. Each has a line of its own in the record.
    #[serde(skip)]
    pub columns: Columns,
}

impl Terms {
    /// How rollouts are sampled where a request says nothing else.
    pub fn sampling(&self) -> SamplerSettings {
        SamplerSettings { temperature: self.temperature, max_tokens: self.max_tokens }
    }
}

/// What a policy makes use of that not every run can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Requests for prompts that are neither on offer nor buffered.
    AnyPrompt,
    /// Rollouts that stay buffered after an update was made on them.
    Replay,
    /// Requests that say how to sample.
    Sampling,
    /// Requests that end when enough was seen.
    Stopping,
    /// Batches that say how to update.
    Updating,
    /// The parts that rewards are made of.
    Parts,
}

/// A hint that ends with how each SDK names a need, by the need's name in each.
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
    /// What a policy's author writes to name it, in the language of each SDK.
    pub fn hint(self) -> &'static str {
        match self {
            Self::AnyPrompt => naming!("name the need", "any-prompt", "ANY_PROMPT", "AnyPrompt"),
            Self::Replay => naming!("name the need", "replay", "REPLAY", "Replay"),
            Self::Sampling => naming!("name the need", "sampling", "SAMPLING", "Sampling"),
            Self::Stopping => naming!("name the need", "stopping", "STOPPING", "Stopping"),
            Self::Updating => naming!("name the need", "updating", "UPDATING", "Updating"),
            Self::Parts => naming!("name the need", "parts", "PARTS", "Parts"),
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
        })
    }
}

impl Default for Terms {
    /// Of a run that does not say.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            max_tokens: u32::MAX,
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
    /// What kind of value this is, in words.
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
            // `{:?}` keeps the point of 1.0, by which a number is told from a whole number.
            Self::Number(v) => write!(f, "{v:?}"),
            Self::Text(v) => write!(f, "{v:?}"),
        }
    }
}
