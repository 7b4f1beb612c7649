//! Verdicts on answers, as written by `allot grade`: JSON lines or parquet.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use allot_base::{Result, replace};
use serde_json::{Value, json};

use super::columns::{Column, Columns, Sheet, told};

/// The verdict on an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct GradedRow {
    /// Its row in the file of answers, from 1.
    pub row: u64,
    /// Source of the problem.
    pub source: String,
    /// The reward; `None` if it could not be graded.
    pub reward: Option<f32>,
    /// Whether the answer is right; `None` if it could not be graded.
    pub correct: Option<bool>,
    /// The named parts of its reward.
    pub rewards: Vec<(String, f32)>,
    /// Why it could not be graded.
    pub error: Option<String>,
}

impl GradedRow {
    /// Returns the verdict as a JSON object.
    pub fn json(&self) -> Value {
        let mut line =
            json!({ "row": self.row, "source": self.source, "reward": self.reward, "correct": self.correct });
        if !self.rewards.is_empty() {
            line["rewards"] = self.parts();
        }
        if let Some(error) = &self.error {
            line["error"] = error.as_str().into();
        }
        line
    }

    fn parts(&self) -> Value {
        Value::Object(self.rewards.iter().map(|(name, x)| (name.clone(), (*x).into())).collect())
    }
}

fn columns() -> Columns<GradedRow> {
    let parts = |l: &GradedRow| (!l.rewards.is_empty()).then(|| l.parts().to_string().as_str().into());
    vec![
        ("row", Column::Count(|l| l.row.cast_signed())),
        ("source", Column::Text(|l| l.source.as_str().into())),
        ("reward", Column::MaybeFloat(|l| l.reward)),
        ("rewards", Column::MaybeText(parts)),
        ("correct", Column::MaybeBool(|l| l.correct)),
        ("error", Column::MaybeText(|l| l.error.as_deref().map(Into::into))),
    ]
}

/// Writes verdicts, replacing any existing file: parquet if it is named `.parquet` or `.pq`, else JSON lines. The file appears
/// complete or not at all.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, rows: &[GradedRow]) -> Result<()> {
    let parquet = path.extension().is_some_and(|ending| ending == "parquet" || ending == "pq");
    replace(path, |file| {
        let mut file = BufWriter::new(file);
        if parquet {
            let sheet = Sheet::new(file, columns(), "row", &["error"]);
            let mut sheet = sheet.map_err(told)?;
            sheet.write(rows).map_err(told)?;
            file = sheet.finish().map_err(told)?;
        } else {
            rows.iter().try_for_each(|row| writeln!(file, "{}", row.json()))?;
        }
        file.flush()
    })
}
