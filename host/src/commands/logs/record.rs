//! What a run's record tells a bank: its rollouts, and the lengths of its prompts.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;

use allot_allocation::shown;
use allot_bank::{Left, Row, Told};
use allot_base::{Error, Result};
use allot_record::{Line, Reader, Sampled};

/// The file's name in a run's folder.
pub(super) const NAME: &str = "record.jsonl";

/// Returns whether a file is a run's record.
pub(super) fn is_record(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == NAME)
}

/// Returns the lengths of a run's prompts, in tokens, by number: those that were on offer to its policy.
pub(super) fn lengths(record: &Path) -> Result<HashMap<u32, u32>> {
    let mut known = HashMap::new();
    let (reader, _) = Reader::open(record)?;
    for line in reader {
        if let Line::Call(call) = line? {
            known.extend(call.offered.iter().map(|prompt| (prompt.id.0, prompt.tokens)));
        }
    }
    Ok(known)
}

/// Adds the rollouts of a record that are of the asked versions of the model, in the order in which they were sampled. A prompt's name is
/// its number.
pub(super) fn read(
    record: &Path,
    versions: Option<&RangeInclusive<u32>>,
    rows: &mut Vec<Row>,
    told: &mut Told,
) -> Result<()> {
    told.layouts.push("a run's record");
    let (mut known, mut version) = (HashMap::new(), 0);
    let (mut reader, _) = Reader::open(record)?;
    while let Some(line) = reader.next() {
        match line? {
            Line::Call(call) => {
                known.extend(call.offered.iter().map(|prompt| (prompt.id.0, prompt.tokens)));
            }
            Line::Rollouts(rollouts) => {
                for sampled in &rollouts.sampled {
                    let all = of(sampled, version, known.get(&sampled.prompt.0).copied());
                    let all = all.ok_or_else(|| {
                        let what = format!(
                            "`{}` line {}: the lists of prompt {} don't fit together",
                            shown::path(record),
                            reader.line(),
                            sampled.prompt
                        );
                        Error::new(what).hint("take the record of another run")
                    })?;
                    let wanted = versions.is_none_or(|wanted| wanted.contains(&version));
                    told.rows += all.len() as u64 + u64::from(sampled.unscorable);
                    for (left, n) in [
                        (Left::Version, if wanted { 0 } else { all.len() as u64 }),
                        (Left::Unscored, sampled.unscorable.into()),
                    ] {
                        if n > 0 {
                            *told.left.entry(left).or_default() += n;
                        }
                    }
                    rows.extend(all.into_iter().filter(|_| wanted));
                }
            }
            Line::Step(step) => version += u32::from(step.updated),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the rollouts of a prompt, or `None` if their lists are of different lengths.
fn of(sampled: &Sampled, version: u32, prompt_tokens: Option<u32>) -> Option<Vec<Row>> {
    let all = sampled.outcomes()?.into_iter().map(|one| Row {
        key: sampled.prompt.to_string(),
        order: Some(sampled.prompt.0.into()),
        prompt_tokens,
        version: Some(version),
        reward: one.reward.unwrap_or_default(),
        correct: one.correct,
        tokens: Some(one.tokens),
        truncated: one.truncated,
        count: None,
    });
    Some(all.collect())
}
