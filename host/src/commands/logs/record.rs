//! What a run's record tells a bank: its rollouts, and the lengths of its prompts.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::Path;

use allot_allocation::shown;
use allot_bank::{Left, Row, Told};
use allot_base::{Error, Result};
use allot_record::{Head, Line, Reader, Sampled};

/// The file's name in a run's folder.
pub(super) const NAME: &str = "record.jsonl";

/// How a record begins.
const HEAD: &[u8] = b"{\"kind\":\"head\"";

/// Returns whether a file is a run's record.
pub(super) fn is_record(file: &Path) -> bool {
    let mut start = [0; HEAD.len()];
    File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == HEAD
}

/// Returns the lengths of prompts, in tokens, by number: those that were on offer to the policies of these runs.
///
/// # Errors
///
/// Records that can't be read, and runs on different data, whose numbers are of different prompts.
pub(super) fn lengths(runs: &[&Path]) -> Result<HashMap<u32, u32>> {
    let (mut known, mut first) = (HashMap::new(), None);
    for run in runs {
        let (reader, head) = Reader::open(run)?;
        let data = data(&head);
        if first.get_or_insert_with(|| data.clone()) != &data {
            return Err(other_data(runs[0], run));
        }
        for line in reader {
            if let Line::Call(call) = line? {
                known.extend(call.offered.iter().map(|prompt| (prompt.id.0, prompt.tokens)));
            }
        }
    }
    Ok(known)
}

/// Returns why two runs can't be read together.
pub(super) fn other_data(one: &Path, other: &Path) -> Error {
    let [one, other] = [one, other].map(shown::path);
    Error::new(format!("`{one}` and `{other}` are of runs on other data"))
        .hint("prompts go by their numbers in a record: give records of the same data together")
}

/// Adds the rollouts of a record that are of the asked versions of the model, in the order in which they were sampled. A prompt's name is
/// its number.
pub(super) fn read(
    record: &Path,
    versions: Option<&RangeInclusive<u32>>,
    rows: &mut Vec<Row>,
    told: &mut Told,
) -> Result<Head> {
    let (mut known, mut version) = (HashMap::new(), 0);
    let (mut reader, head) = Reader::open(record)?;
    told.layouts.push(if head.world.is_some() { "a simulation's record" } else { "a run's record" });
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
                    let mut leave = |why, rollouts: u64| {
                        if rollouts > 0 {
                            *told.left.entry(why).or_default() += rollouts;
                        }
                    };
                    leave(Left::Unscored, sampled.unscorable.into());
                    for row in all {
                        if !wanted {
                            leave(Left::Version, 1);
                        } else if row.reward.is_finite() {
                            rows.push(row);
                        } else {
                            // The number in the record is too large for a reward.
                            leave(Left::Unscored, 1);
                        }
                    }
                }
            }
            Line::Step(step) => version += u32::from(step.updated),
            _ => {}
        }
    }
    Ok(head)
}

/// Returns what tells the data of one run from those of another: the number of prompts, and their hash or that of their lengths, where
/// the record has it.
pub(super) fn data(head: &Head) -> (u32, Option<String>) {
    let of_problems = head.training.as_ref().and_then(|training| training["problems"]["sha256"].as_str());
    (head.run.prompts, of_problems.map(str::to_owned).or_else(|| head.lengths.clone()))
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
