//! A rollout as it is read, or why it is left out.

/// A rollout with its prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Name of its prompt. Rows with the same name have the same prompt, even in different files.
    pub key: String,
    /// Position of the prompt in its data set, if known.
    pub order: Option<u64>,
    /// The prompt's length in tokens, if known.
    pub prompt_tokens: Option<u32>,
    /// The model's version, if known.
    pub version: Option<u32>,
    /// The reward. It is finite.
    pub reward: f32,
    /// Whether the answer was right.
    pub correct: bool,
    /// Its length in tokens, if known.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// Of a prompt with a pass rate in place of a reward: how many rollouts that was of.
    pub count: Option<u32>,
}

/// Reason why a row is left out of the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// `--where` does not match.
    Only,
    /// The version was not asked for.
    Version,
    /// It belongs to an evaluation, on prompts that are not trained on.
    Evaluation,
    /// It repeats a rollout under another answer filter.
    Filter,
    /// It has no reward, and no column says whether it was right.
    Unscored,
}

impl Left {
    /// Returns a description of the rows left out, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Only => "not what --where asks for",
            Self::Version => "of other versions",
            Self::Evaluation => "of an evaluation",
            Self::Filter => "the same rollouts under another filter",
            Self::Unscored => "without a reward",
        }
    }
}
