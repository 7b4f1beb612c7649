//! Finds runs. A run is a folder that contains a `record.jsonl`.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// Maximum depth of the search below a folder.
const DEPTH: usize = 4;

/// Returns the runs of a folder: the folder itself if it is a run, otherwise the runs below it, in natural
/// order. Skips links to folders and hidden folders.
pub fn runs(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    below(place, DEPTH, &mut found);
    found.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    found
}

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join("record.jsonl").is_file() {
        found.push(folder.to_owned());
        return;
    }
    // Skip folders that can't be read.
    let (Some(depth), Ok(entries)) = (depth.checked_sub(1), std::fs::read_dir(folder)) else { return };
    for entry in entries.flatten() {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), depth, found);
        }
    }
}

/// Compares names in natural order: `seed-2` comes before `seed-10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else { return a.len().cmp(&b.len()) };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (m, n) = (number(&mut a), number(&mut b));
            m.len().cmp(&n.len()).then_with(|| m.cmp(n))
        } else {
            (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
            // A folder's content comes before a folder with a longer name.
            (x != '/').cmp(&(y != '/')).then(x.cmp(&y))
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Removes the digits at the start of `text` and returns them without leading zeros.
fn number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    digits.trim_start_matches('0')
}

/// Returns names for runs, given as pairs of search folder and run: their paths without a common prefix.
pub fn names(runs: &[(&Path, &Path)]) -> Vec<String> {
    if let [(place, run)] = runs
        && let Ok(name) = run.strip_prefix(place)
        && name != Path::new("")
    {
        return vec![name.display().to_string()];
    }
    let parts: Vec<Vec<_>> = runs.iter().map(|(_, run)| run.components().collect()).collect();
    let shared = parts.iter().map(|p| p.len().saturating_sub(1)).min().unwrap_or(0);
    let same = |i: &usize| parts.iter().all(|p| p[*i] == parts[0][*i]);
    let skip = (0..shared).take_while(same).count();
    parts.iter().map(|p| p[skip..].iter().collect::<PathBuf>().display().to_string()).collect()
}
