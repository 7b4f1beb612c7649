//! Dumps of rollouts by slime's `--save-debug-rollout-data`: `save_debug_rollout_data` of slime/observability/rollout_data_utils.py
//! writes a dictionary of `rollout_id` and `samples` with torch.save, which makes a zip archive with a pickle.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use allot_allocation::shown;
use allot_base::{Error, Result};
use serde_json::{Map, Value};
use zip::{CompressionMethod, ZipArchive};

use crate::pickle::{Item, Pickle};

/// Returns whether a file's ending is that of such a dump.
pub fn is_dump(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("pt"))
}

/// Returns the samples of a dump, as rows.
///
/// # Errors
///
/// A file that torch.save did not write, or that has no samples.
pub(super) fn rows(path: &Path) -> Result<Vec<Map<String, Value>>> {
    let wrong = |reason: String| {
        let what = format!("`{}` can't be read as a dump of slime's rollouts: {reason}", shown::path(path));
        Error::new(what).hint("name files that slime's --save-debug-rollout-data wrote")
    };
    let file = File::open(path).map_err(|e| Error::file("read", path, &e))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|e| wrong(e.to_string()))?;
    let name = archive.file_names().flatten().find(|name| name.ends_with("/data.pkl"));
    let name = name.ok_or_else(|| wrong("it has no `data.pkl`".to_owned()))?.into_owned();
    let entry = archive.by_name(&name).map_err(|e| wrong(e.to_string()))?;
    // A compressed one could be far larger than the file.
    if entry.compression() != CompressionMethod::Stored {
        return Err(wrong(format!(
            "`{}` in it is compressed, and torch.save stores it as it is",
            shown::name(&name)
        )));
    }
    let (pickle, top) = Pickle::read(&mut BufReader::new(entry)).map_err(wrong)?;
    let step = pickle.get(top, "rollout_id").map_or(Ok(None), |item| pickle.json(item)).map_err(wrong)?;
    let step = step
        .filter(Value::is_u64)
        .ok_or_else(|| wrong("it has no `rollout_id`, or not a number".to_owned()))?;
    let samples = pickle.get(top, "samples").and_then(|item| pickle.items(item));
    let samples = samples.ok_or_else(|| wrong("it has no list of `samples`".to_owned()))?;
    let purpose = if is_of_evaluation(path, &step.to_string()) { "evaluation" } else { "training" };
    let one = |(i, sample): (usize, &Item)| {
        let row = row(&pickle, *sample).map_err(wrong)?;
        let row = row.ok_or_else(|| wrong(format!("sample {i} is not a dictionary")))?;
        let more = [("step", step.clone()), ("purpose", purpose.into())];
        Ok(row.into_iter().chain(more.map(|(name, value)| (name.to_owned(), value))).collect())
    };
    samples.iter().enumerate().map(one).collect()
}

/// Returns whether a log is of an evaluation: slime puts `eval_` before the number of a step, which may be in a folder's name.
fn is_of_evaluation(path: &Path, step: &str) -> bool {
    let mark = format!("eval_{step}");
    path.iter().map(|part| part.to_string_lossy()).any(|part| {
        part.match_indices(&mark).any(|(start, _)| {
            !part[..start].ends_with(char::is_alphabetic)
                && !part[start + mark.len()..].starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

/// Returns a sample with its prompt's length and whether it was cut off (`Sample` of slime/utils/types.py): `tokens` are those of
/// the prompt and of the response.
fn row(pickle: &Pickle, sample: Item) -> std::result::Result<Option<Map<String, Value>>, String> {
    let mut row = Map::new();
    let Some(entries) = pickle.entries(sample) else { return Ok(None) };
    for (name, value) in entries {
        if let Some(value) = pickle.json(value)? {
            row.entry(name).or_insert(value);
        }
    }
    let all = pickle.get(sample, "tokens").and_then(|tokens| pickle.numbers(tokens)).filter(|all| *all > 0);
    let response = row.get("response_length").and_then(Value::as_u64);
    let prompt = all.zip(response).and_then(|(all, response)| (all as u64).checked_sub(response));
    row.insert("prompt_tokens".to_owned(), prompt.into());
    let truncated = row.get("status").and_then(Value::as_str) == Some("truncated");
    row.insert("truncated".to_owned(), truncated.into());
    Ok(Some(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_known_by_its_number_in_any_part_of_the_path() {
        for (path, is) in [
            ("dumps/rollout_eval_3.pt", true),
            ("eval_3.pt", true),
            ("dumps/eval_3/data.pt", true),
            ("dumps/rollout_3.pt", false),
            ("dumps/retrieval_3.pt", false),
            ("dumps/eval_31.pt", false),
            ("eval_1/rollout_3.pt", false),
        ] {
            assert_eq!(is_of_evaluation(Path::new(path), "3"), is, "{path}");
        }
    }
}
