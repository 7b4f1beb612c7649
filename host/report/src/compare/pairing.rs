//! Whether an arm's runs are compared with the baseline's in pairs of one seed, or as two samples.

use std::collections::BTreeSet;

use super::Runs;
use crate::history::History;

/// Returns the pairs of runs of an arm and the baseline with the same seed.
pub fn pairs<'g>(arm: &'g Runs, baseline: &'g Runs) -> Vec<(&'g History, &'g History)> {
    let other = |run: &History| baseline.runs.iter().find(|b| b.head.seed == run.head.seed);
    arm.runs.iter().filter_map(|run| Some((run, other(run)?))).collect()
}

/// Whether two arms are compared as two samples. They are if a seed has several runs, as there is no telling which belong
/// together; if no seed is in common; and if one is, but both have more runs, as one pair has no test.
///
/// It depends on the seeds alone, never on results.
pub fn unpaired(arm: &Runs, baseline: &Runs) -> bool {
    let common = seeds(arm).intersection(&seeds(baseline)).count();
    let fewer = arm.runs.len().min(baseline.runs.len());
    repeated(arm) || repeated(baseline) || common == 0 || (common == 1 && fewer > 1)
}

/// Returns why an arm and the baseline are compared as two samples, in words for a note; `None` if they are paired.
pub fn why(arm: &Runs, baseline: &Runs) -> Option<String> {
    let (name, against) = (&arm.name, &baseline.name);
    let repeats = [arm, baseline].into_iter().find(|runs| repeated(runs));
    let common = seeds(arm).intersection(&seeds(baseline)).count();
    let because = match (repeats, common) {
        (Some(runs), _) => format!("`{}` has several runs of one seed", runs.name),
        (None, 0) => "they have no seed in common".to_owned(),
        (None, _) => "they have only one seed in common".to_owned(),
    };
    unpaired(arm, baseline).then(|| {
        format!(
            "the runs of `{name}` and `{against}` are compared unpaired, by Welch's t-test, because {because}"
        )
    })
}

/// Whether a seed of the arm has several runs.
pub fn repeated(runs: &Runs) -> bool {
    seeds(runs).len() < runs.runs.len()
}

fn seeds(runs: &Runs) -> BTreeSet<u64> {
    runs.runs.iter().map(|run| run.head.seed).collect()
}
