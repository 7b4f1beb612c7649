//! `evaluations.jsonl`: accuracies that a trainer in Python tells beside its record, because it evaluates after a step's line
//! is written, after the end, or later, from saved weights.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::appended::whole_lines;
use crate::{RecordError, Result};

/// An evaluation of a run's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Steps finished before it.
    pub steps: u32,
    /// Share of right answers, from 0 to 1.
    pub accuracy: f64,
    /// Its parts, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
}

impl Evaluation {
    /// Returns the complete lines in a run's folder, or an empty list if it has no such file. Of a step's lines the last counts.
    pub fn read(run: &Path) -> Result<Vec<Self>> {
        let path = run.join("evaluations.jsonl");
        let all: Vec<Self> = whole_lines(&path)?.collect::<Result<_>>()?;
        match all.iter().position(|told| !(0.0..=1.0).contains(&told.accuracy)) {
            Some(i) => {
                let reason = format!("the accuracy is {}; it is from 0 to 1", all[i].accuracy);
                Err(RecordError::Line { path, number: i + 1, reason })
            }
            None => Ok(all),
        }
    }
}
