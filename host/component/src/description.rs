//! What a policy says of itself before it is asked anything.

use allot_allocation::{Need, Value};
use serde::Deserialize;

/// What a policy says of itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Description {
    /// Short and lower-case.
    pub name: String,
    /// The policy's own version.
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// Every setting a run may give.
    pub settings: Vec<Setting>,
    /// Signals to show beside each rollout.
    pub signals: Vec<String>,
    /// Columns of the data set to answer from.
    pub columns: Vec<String>,
    /// What else it makes use of.
    pub needs: Vec<Need>,
}

/// A setting of a policy. Its default also fixes its type.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// The value in force where a run gives none.
    pub default: Value,
    /// One line for people.
    pub summary: String,
}
