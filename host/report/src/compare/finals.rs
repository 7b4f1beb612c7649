//! Last and best accuracy, and the differences of arms in it: seed by seed or, where runs are unpaired, of two samples.

use super::pairing::{pairs, unpaired};
use super::{CONFIDENCE, Runs, bootstrap, mean, state, with_ends};
use crate::history::{History, Score};
use crate::report::{Difference, Estimate, Final, Part, State};
use crate::statistics::{
    Aggregate, Needed, Scores, aggregate, apart, difference, holm, improvement, seeds_needed, sign_flip,
};

/// Returns each arm's accuracy over its finished runs.
pub fn finals(groups: &[Runs], baseline: usize) -> Vec<Final> {
    let parts = part_names(groups);
    let table = |group: &Runs| {
        let row = |run: &History| {
            let last = run.scores.last()?;
            parts.iter().map(|name| part(last, name)).collect::<Option<Vec<f64>>>()
        };
        let rows: Option<Vec<Vec<f64>>> = group.finished().map(row).collect();
        Scores::new(&rows.unwrap_or_default()).ok()
    };
    let base = table(&groups[baseline]);
    let one = |(arm, group): (usize, &Runs)| {
        let runs: Vec<&History> = group.finished().collect();
        let of = |take: fn(&History) -> f64| runs.iter().map(|run| take(run)).collect::<Vec<f64>>();
        let scores = table(group);
        let iqm = scores.as_ref().map(|scores| aggregate(&bootstrap(), scores, Aggregate::Iqm));
        let versus = match (&scores, &base) {
            (Some(ours), Some(theirs)) if arm != baseline => {
                let least = ours.runs().min(theirs.runs());
                with_ends(improvement(&bootstrap(), ours, theirs), least)
            }
            _ => None,
        };
        Final {
            arm,
            runs: runs.len(),
            start: mean(&of(|r| r.scores.first().map_or(f64::NAN, |s| s.accuracy))).value,
            last: mean(&of(|r| r.scores.last().map_or(f64::NAN, |s| s.accuracy))),
            best: mean(&of(|r| r.scores.iter().map(|s| s.accuracy).fold(f64::NAN, f64::max))),
            iqm: iqm.and_then(|iqm| with_ends(iqm, runs.len())).unwrap_or(NOTHING),
            improvement: versus,
            more: more(&runs),
        }
    };
    groups.iter().enumerate().map(one).collect()
}

const NOTHING: Estimate = Estimate { value: f64::NAN, low: None, high: None };

/// Suffix of the share of a set's answers without a verdict.
pub const UNJUDGED: &str = "/unjudged";

/// Prefix of the numbers of further settings.
const ALSO: &str = "also/";

/// Returns the means of other final measurements: pass@k, the share of answers without a verdict if there
/// are any, and avg@k in further settings.
fn more(runs: &[&History]) -> Vec<(String, Estimate)> {
    let Some(first) = runs.first().and_then(|run| run.scores.last()) else { return Vec::new() };
    let any = |name: &str| runs.iter().any(|run| run.scores.last().and_then(|s| named(s, name)) > Some(0.0));
    let names = first.parts.iter().map(|(name, _)| name);
    names
        .filter(|name| {
            let further = name.starts_with(ALSO) && name.contains("/avg@");
            further || name.contains("/pass@") || (name.ends_with(UNJUDGED) && any(name))
        })
        .filter_map(|name| {
            let values: Option<Vec<f64>> = runs.iter().map(|run| named(run.scores.last()?, name)).collect();
            Some((name.clone(), mean(&values?)))
        })
        .collect()
}

/// Returns the parts of the held-out problems: the sources within a set if it has several, else the sets,
/// else all problems. They are rliable's tasks.
pub fn part_names(groups: &[Runs]) -> Vec<String> {
    let first = groups.iter().flat_map(|g| &g.runs).find_map(|run| run.scores.last());
    let names = first.iter().flat_map(|s| &s.parts).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| !name.starts_with(ALSO)).collect();
    let whole = |name: &&&str| name.contains("/avg@");
    let sources: Vec<&&str> = names
        .iter()
        .filter(|n| n.starts_with("eval/") && !n.contains("/avg@") && !n.contains("/pass@"))
        .filter(|n| !n.ends_with(UNJUDGED))
        .collect();
    let in_parts =
        |set: &str| sources.iter().any(|s| s.strip_prefix(set).is_some_and(|r| r.starts_with('/')));
    let sets = names.iter().filter(whole).filter(|name| {
        let set = name.rsplit_once('/').map_or(**name, |(set, _)| set);
        !in_parts(set)
    });
    let parts: Vec<String> = sources.iter().copied().chain(sets).map(|name| (*name).to_owned()).collect();
    if parts.is_empty() { vec!["accuracy".to_owned()] } else { parts }
}

/// Returns a score's number for a part.
pub fn part(score: &Score, name: &str) -> Option<f64> {
    if name == "accuracy" { Some(score.accuracy) } else { named(score, name) }
}

fn named(score: &Score, name: &str) -> Option<f64> {
    score.parts.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
}

/// Returns each arm's last accuracy on each part.
pub fn parts(groups: &[Runs]) -> Vec<Part> {
    let names = part_names(groups);
    if names.len() < 2 {
        return Vec::new();
    }
    let one = |arm: usize, name: &String| {
        let last = |run: &History| run.scores.last().and_then(|s| part(s, name));
        let values: Vec<f64> = groups[arm].finished().filter_map(last).collect();
        let shown = name.strip_prefix("eval/").unwrap_or(name);
        let shown = shown.split("/avg@").next().unwrap_or(shown).to_owned();
        (!values.is_empty()).then(|| Part { arm, part: shown, last: mean(&values) })
    };
    (0..groups.len()).flat_map(|arm| names.iter().filter_map(move |name| one(arm, name))).collect()
}

/// Returns the differences of last accuracies to the baseline. They have intervals at `level` and Holm's correction over the arms.
pub fn differences(groups: &[Runs], baseline: usize, level: f64) -> Vec<Difference> {
    let others: Vec<usize> = (0..groups.len()).filter(|arm| *arm != baseline).collect();
    let alpha = (1.0 - CONFIDENCE) / others.len().max(1) as f64;
    let mut rows: Vec<Difference> = others
        .into_iter()
        .filter_map(|arm| {
            let done = |run: &&History| state(run) == State::Finished;
            let last = |run: &History| run.scores.last().map_or(f64::NAN, |s| s.accuracy);
            let (arm_runs, base_runs) = (&groups[arm], &groups[baseline]);
            let unpaired = unpaired(arm_runs, base_runs);
            let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs(arm_runs, base_runs)
                .into_iter()
                .filter(|(a, b)| done(a) && done(b))
                .map(|(a, b)| (last(a), last(b)))
                .unzip();
            let all = |of: &Runs| of.finished().map(last).collect::<Vec<f64>>();
            let found = if unpaired {
                apart(level, &all(arm_runs), &all(base_runs)).ok()?
            } else {
                difference(level, &ours, &theirs).ok()?
            };
            let differences: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
            let flips = found.pairs > 1 && !unpaired;
            let interval = found.test.map(|t| t.interval);
            let needed = found.deviation.and_then(|d| seeds_needed(found.mean, d, alpha).ok());
            Some(Difference {
                arm,
                seeds: found.pairs,
                unpaired,
                mean: Estimate {
                    value: found.mean,
                    low: interval.map(|i| i.low),
                    high: interval.map(|i| i.high),
                },
                p: found.test.map(|t| t.p_value),
                holm: None,
                flip: if flips { sign_flip(1, &differences).ok().map(|f| f.p_value) } else { None },
                needed: needed.and_then(|n| match n {
                    Needed::Seeds(n) => Some(u64::from(n)),
                    Needed::MoreThan(_) => None,
                }),
            })
        })
        .collect();
    // Arms without a test belong to the family, too.
    let missing = groups.len().saturating_sub(1 + rows.len());
    let tested: Vec<f64> =
        rows.iter().map(|row| row.p.unwrap_or(1.0)).chain(std::iter::repeat_n(1.0, missing)).collect();
    for (row, p) in rows.iter_mut().zip(holm(&tested).unwrap_or_default()) {
        row.holm = row.p.map(|_| p);
    }
    rows
}
