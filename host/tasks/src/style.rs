//! The style of a generated question.

use serde::{Deserialize, Serialize};

/// Style of a task's questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// A sentence.
    #[default]
    Words,
    /// The fewest characters, for a small model of characters: `12+34=`.
    Terse,
}
