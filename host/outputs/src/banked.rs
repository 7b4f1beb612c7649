//! `bank.parquet`: rollouts by prompt that were sampled before, for simulated runs. Columns have the same
//! names and meanings as in a run's own table.

use std::io::BufWriter;
use std::path::Path;

use allot_base::{Result, replace};

use super::columns::{Column, Columns, Sheet, told};

/// A rollout of a bank.
#[derive(Clone, Copy, Debug)]
pub struct BankedRow<'a> {
    /// The prompt's position.
    pub prompt: u32,
    /// Name of the prompt in its source.
    pub problem: &'a str,
    /// The prompt's length in tokens, if known.
    pub prompt_tokens: Option<u32>,
    /// The model's version.
    pub version: u32,
    /// Its length in tokens, if known.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// The reward.
    pub reward: f32,
    /// Whether the answer was right.
    pub correct: bool,
}

fn columns<'a>() -> Columns<BankedRow<'a>> {
    vec![
        ("prompt", Column::Count(|l| l.prompt.into())),
        ("problem", Column::Text(|l| l.problem.into())),
        ("prompt_tokens", Column::MaybeCount(|l| l.prompt_tokens.map(Into::into))),
        ("version", Column::Count(|l| l.version.into())),
        ("tokens", Column::MaybeCount(|l| l.tokens.map(Into::into))),
        ("truncated", Column::Bool(|l| l.truncated)),
        ("reward", Column::MaybeFloat(|l| Some(l.reward))),
        ("correct", Column::Bool(|l| l.correct)),
    ]
}

/// Rollouts per row group.
const GROUP: usize = 1 << 18;

/// Writes a bank, replacing any existing file. The file appears complete or not at all.
pub fn write(path: &Path, rows: &[BankedRow<'_>]) -> Result<()> {
    replace(path, |file| {
        let sheet = Sheet::new(BufWriter::new(file), columns(), "prompt", &[]);
        let ended = sheet.and_then(|mut sheet| {
            rows.chunks(GROUP).try_for_each(|rows| sheet.write(rows))?;
            sheet.finish()
        });
        ended.map_err(told)?.into_inner()?.sync_all()
    })
}
