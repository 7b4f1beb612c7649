//! Dumps of rollouts by slime's `--save-debug-rollout-data`: `save_debug_rollout_data` of slime/observability/rollout_data_utils.py
//! writes a dictionary of `rollout_id` and `samples` with torch.save, which makes a zip archive with a pickle.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use allot_allocation::shown;
use allot_base::{Error, Result};
use serde_json::{Map, Value};
use zip::ZipArchive;

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
    let mut entry = BufReader::new(archive.by_name(&name).map_err(|e| wrong(e.to_string()))?);
    let (pickle, top) = Pickle::read(&mut entry).map_err(wrong)?;
    let step = pickle.get(top, "rollout_id").and_then(|item| pickle.json(item)).filter(Value::is_u64);
    let step = step.ok_or_else(|| wrong("it has no `rollout_id`, or not a number".to_owned()))?;
    let samples = pickle.get(top, "samples").and_then(|item| pickle.items(item));
    let samples = samples.ok_or_else(|| wrong("it has no list of `samples`".to_owned()))?;
    // slime puts this before the number in the names of evaluations, and nowhere else.
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let purpose = if stem.contains(&format!("eval_{step}")) { "evaluation" } else { "training" };
    let one = |(i, sample): (usize, &Item)| {
        let row = row(&pickle, *sample).ok_or_else(|| wrong(format!("sample {i} is not a dictionary")))?;
        let more = [("step", step.clone()), ("purpose", purpose.into())];
        Ok(row.into_iter().chain(more.map(|(name, value)| (name.to_owned(), value))).collect())
    };
    samples.iter().enumerate().map(one).collect()
}

/// Returns a sample with its prompt's length and whether it was cut off (`Sample` of slime/utils/types.py): `tokens` are those of
/// the prompt and of the response.
fn row(pickle: &Pickle, sample: Item) -> Option<Map<String, Value>> {
    let mut row = Map::new();
    for (name, value) in pickle.entries(sample)? {
        if let Some(value) = pickle.json(value) {
            row.entry(name).or_insert(value);
        }
    }
    let all = pickle.get(sample, "tokens").and_then(|tokens| pickle.numbers(tokens)).filter(|all| *all > 0);
    let response = row.get("response_length").and_then(Value::as_u64);
    let prompt = all.zip(response).and_then(|(all, response)| (all as u64).checked_sub(response));
    row.insert("prompt_tokens".to_owned(), prompt.into());
    let truncated = row.get("status").and_then(Value::as_str) == Some("truncated");
    row.insert("truncated".to_owned(), truncated.into());
    Some(row)
}
