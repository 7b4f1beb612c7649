//! Whether an arm's runs are compared with the baseline's in pairs of one seed, or as two samples.

use std::collections::BTreeSet;

use super::Runs;
use crate::history::History;

/// Returns the pairs of runs of an arm and the baseline with the same seed.
pub fn pairs<'g>(arm: &'g Runs, baseline: &'g Runs) -> Vec<(&'g History, &'g History)> {
    let other = |run: &History| baseline.runs.iter().find(|b| b.head.seed == run.head.seed);
    arm.runs.iter().filter_map(|run| Some((run, other(run)?))).collect()
}

/// Whether an arm and the baseline are compared as two samples. It depends on the seeds alone, never on results.
pub fn unpaired(arm: &Runs, baseline: &Runs) -> bool {
    because(arm, baseline).is_some()
}

/// Returns a note on why an arm and the baseline are compared as two samples; `None` if they are paired.
pub fn why(arm: &Runs, baseline: &Runs) -> Option<String> {
    let (name, against) = (&arm.name, &baseline.name);
    let note = |because| {
        format!(
            "the runs of `{name}` and `{against}` are compared unpaired, by Welch's t-test, because {because}"
        )
    };
    because(arm, baseline).map(note)
}

/// Returns the reason: a seed has several runs, and there is no telling which belong together; no seed is in common; or one is,
/// but both arms have more runs, and one pair has no test.
fn because(arm: &Runs, baseline: &Runs) -> Option<String> {
    if let Some(runs) = [arm, baseline].into_iter().find(|runs| repeated(runs)) {
        return Some(format!("`{}` has several runs of one seed", runs.name));
    }
    match seeds(arm).intersection(&seeds(baseline)).count() {
        0 => Some("they have no seed in common".to_owned()),
        1 if arm.runs.len().min(baseline.runs.len()) > 1 => {
            Some("they have only one seed in common".to_owned())
        }
        _ => None,
    }
}

/// Whether a seed of the arm has several runs.
pub fn repeated(runs: &Runs) -> bool {
    seeds(runs).len() < runs.runs.len()
}

fn seeds(runs: &Runs) -> BTreeSet<u64> {
    runs.runs.iter().map(|run| run.head.seed).collect()
}
