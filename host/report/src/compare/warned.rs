//! What policies warned of in their runs: of a setting that this comparison does not give them, for example.

use std::collections::BTreeMap;

use super::Runs;

/// Warns of what the policies of an arm logged as warnings: the one of most runs, and how many others there are.
pub fn warned(groups: &[Runs]) -> Vec<String> {
    groups.iter().filter_map(words).collect()
}

fn words(group: &Runs) -> Option<String> {
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for warning in group.runs.iter().flat_map(|run| &run.warned) {
        *runs.entry(warning).or_default() += 1;
    }
    // Of those in equally many runs, the one that came first.
    let (n, all) = (*runs.values().max()?, group.runs.len());
    let first = group.runs.iter().flat_map(|run| &run.warned).find(|warning| runs[warning.as_str()] == n)?;
    let of = if all == 1 { String::new() } else { format!(" in {n} of {all} runs") };
    let others = match runs.len() - 1 {
        0 => String::new(),
        1 => " (and one other warning)".to_owned(),
        n => format!(" (and {n} other warnings)"),
    };
    Some(format!("the policy of `{}` warned{of}: {first}{others}", group.name))
}
