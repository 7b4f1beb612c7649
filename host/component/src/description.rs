//! A policy's description of itself.

use allot_allocation::{Need, Value};
use serde::Deserialize;

/// A policy's description of itself, read before its first call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Description {
    /// The name: short and in lower case.
    pub name: String,
    /// The policy's own version.
    pub version: String,
    /// One line of text for users.
    pub summary: String,
    /// All settings of the policy.
    pub settings: Vec<Setting>,
    /// Signals that the policy requests for each rollout.
    pub signals: Vec<String>,
    /// Columns of the data set that the policy requests.
    pub columns: Vec<String>,
    /// Other features that the policy needs.
    pub needs: Vec<Need>,
}

impl Description {
    /// Returns whether the policy needs rollouts that are episodes.
    pub fn plays(&self) -> bool {
        self.needs.iter().any(|need| matches!(need, Need::Turns | Need::Starting))
    }
}

/// A setting of a policy. Its default also fixes its type.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The value used if a run sets none.
    pub default: Value,
    /// One line of text for users.
    pub summary: String,
}
