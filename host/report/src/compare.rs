//! Comparison of runs: from histories to a [`Report`]. All sentences and numbers of a report are made here.

mod arms;
mod costs;
mod fairness;
mod finals;
mod looks;
mod pairing;
mod strict;
mod task;
mod teaching;
mod uses;
mod verdict;
mod warned;

use crate::axis::{Axis, MARGIN};
use crate::frontier::Frontier;
use crate::history::History;
use crate::report::{Curve, Estimate, Report, State};
use crate::statistics::{self, Aggregate, Bootstrap, Scores, band};
use crate::tuning::Tuning;

pub use arms::{Runs, names, told};
pub use looks::{Look, before_growth, level};
pub use strict::complaints;

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Name of the baseline arm; by default the first arm.
    pub baseline: Option<String>,
    /// Target accuracies. If empty, the baseline's final accuracy is the target.
    pub targets: Vec<f64>,
    /// The axis of costs; by default that of the runs' budget.
    pub axis: Option<Axis>,
    /// A difference in accuracy too small to matter.
    pub margin: Option<f64>,
    /// Order of the arms, by name; other arms follow.
    pub order: Vec<String>,
    /// Source of each prompt, by its number, if known.
    pub sources: Vec<String>,
    /// The tuning of the arms, if they were tuned.
    pub tuning: Option<Tuning>,
    /// Keys in which the runs of an arm may differ, beside the seed.
    pub ignored: Vec<String>,
    /// Seeds planned for the comparison or, of finished runs, the [`id`](History::id) of each.
    pub planned: Vec<u64>,
    /// Whether the comparison is of finished runs, and looks count runs.
    pub of_runs: bool,
    /// Earlier reports on the comparison.
    pub looks: Vec<Look>,
}

/// Confidence level of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Resamples of a bootstrap: enough for the third digit of an interval's end.
const RESAMPLES: u32 = 5000;

/// Number of steps between the points of a curve.
const POINTS: usize = 60;

/// The seeded bootstrap of all intervals here, so that repeating a report gives the same numbers.
fn bootstrap() -> Bootstrap<'static> {
    Bootstrap { level: CONFIDENCE, ..Bootstrap::seeded(1, RESAMPLES) }
}

/// Compares runs. `notes` are about runs that could not be read. Also returns the groups of runs that the
/// report's arms were made of.
///
/// Fails with a message if there is nothing to compare, or if no arm is the baseline.
pub fn compare(
    histories: Vec<History>,
    question: &Question,
    notes: Vec<String>,
) -> Result<(Report, Vec<Runs>), String> {
    let mut notes = notes;
    for history in &histories {
        notes.extend(history.troubles.iter().map(|error| format!("`{}`: {error}", history.run)));
    }
    let groups = arms::grouped(histories, &question.order, &question.ignored, &mut notes)?;
    let baseline = baseline(&groups, question, &mut notes)?;
    let axes = axes(&groups, question.axis)?;
    let axis = axes[0];
    let margin = question.margin.unwrap_or(MARGIN);
    let finals = finals::finals(&groups, baseline);
    let differences = finals::differences(&groups, baseline, CONFIDENCE);
    let targets = costs::wanted(&groups, baseline, &question.targets, &mut notes);
    let compared = looks::Compared {
        groups: &groups,
        baseline,
        target: targets.first().copied(),
        axis,
        of_runs: question.of_runs,
    };
    let targets = costs::targets(&groups, baseline, &targets, &axes, CONFIDENCE);
    let (mut warnings, differing) = fairness::look(&groups, axis, question.tuning.as_ref());
    warnings.extend(fairness::ignored(&groups, &question.ignored));
    let before = before_growth(&question.looks, &question.planned);
    // With a single look, no correction is applied.
    let corrected = compared.corrected(before.len() + 1);
    let mut verdicts = verdict::verdicts(&verdict::Seen {
        groups: &groups,
        baseline,
        axis,
        margin,
        looks: before.len() + 1,
        targets: &corrected.targets,
        differences: &corrected.differences,
    });
    let looks = (!before.is_empty()).then(|| compared.looks(&before, &corrected));
    if let Some(looks) = &looks {
        looks.tell(&mut verdicts, axis, &groups[baseline].name);
        warnings.insert(0, looks.warning(question.planned.len()));
    }
    let uses = uses::uses(&groups);
    notes.extend(fairness::unlearned(&groups, &uses));
    notes.extend(fairness::unseen(&groups));
    notes.extend(fairness::seeds(&groups, baseline));
    let taught = teaching::taught(&groups, &question.sources);
    notes.extend(teaching::starved(&groups, baseline, &taught));
    let resolution = targets.first().and_then(|target| costs::resolution(&groups, target.accuracy, axis));
    let curves = axes.iter().flat_map(|axis| curves(&groups, *axis)).collect();
    let mut report = Report {
        title: title(&groups),
        shared: fairness::shared(&groups),
        axis,
        axes,
        asked: !question.targets.is_empty(),
        confidence: CONFIDENCE,
        baseline,
        arms: groups.iter().map(Runs::arm).collect(),
        warnings,
        notes,
        verdicts,
        curves,
        targets,
        parts: finals::parts(&groups),
        finals,
        differences,
        uses,
        trends: uses::trends(&groups, axis),
        differing,
        taught,
        resolution,
        tuning: question.tuning.clone(),
        looks,
    };
    let alone = Frontier::of(&report).map(|frontier| frontier.words(&report));
    report.notes.extend(alone.unwrap_or_default());
    Ok((report, groups))
}

/// Returns the name of the baseline and the main axis of a comparison of these runs, without comparing them.
///
/// Fails with a message if there is nothing to compare, or if no arm is the baseline.
pub fn settled(histories: Vec<History>, question: &Question) -> Result<(String, Axis), String> {
    let mut notes = Vec::new();
    let groups = arms::grouped(histories, &question.order, &question.ignored, &mut notes)?;
    let baseline = baseline(&groups, question, &mut notes)?;
    Ok((groups[baseline].name.clone(), axes(&groups, question.axis)?[0]))
}

/// Returns the place of the baseline among the arms: the named one, or the first.
fn baseline(groups: &[Runs], question: &Question, notes: &mut Vec<String>) -> Result<usize, String> {
    if let Some(name) = &question.baseline {
        return arms::called(groups, name).ok_or_else(|| {
            let names: Vec<String> = groups.iter().map(|g| format!("`{}`", g.name)).collect();
            format!("no run belongs to the baseline `{name}`; there are {}", names.join(", "))
        });
    }
    if let Some(name) = question.order.first().filter(|name| arms::called(groups, name).is_none()) {
        let taken = &groups[0].name;
        notes.push(format!("no run of the baseline `{name}` can be used: arms are compared with `{taken}`"));
    }
    Ok(0)
}

/// Returns each arm's accuracies for rliable: runs × parts of the held-out problems × points of the main
/// axis, up to the cost that every finished run reached. Unfinished runs are left out.
pub fn scores(report: &Report, groups: &[Runs]) -> Vec<(String, Vec<Vec<Vec<f64>>>)> {
    let parts = finals::part_names(groups);
    let ends = groups.iter().flat_map(Runs::finished).filter_map(|r| cost(r, report.axis));
    let end = ends.reduce(f64::min).unwrap_or(0.0);
    let grid: Vec<f64> = (0..=POINTS).map(|i| even(0.0, end, i, POINTS)).collect();
    let run = |history: &History| {
        let part = |name: &String| {
            let scores = history.scores.iter();
            let points =
                rising(scores.filter_map(|s| Some((s.costs.on(report.axis)?, finals::part(s, name)?))));
            grid.iter().map(|x| between(&points, *x).unwrap_or(f64::NAN)).collect()
        };
        parts.iter().map(part).collect()
    };
    let arm = |g: &Runs| (g.name.clone(), g.finished().map(run).collect());
    groups.iter().map(arm).collect()
}

/// Returns the axes that every run knows, the main one first: the requested axis, or else that of the
/// budget.
fn axes(groups: &[Runs], asked: Option<Axis>) -> Result<Vec<Axis>, String> {
    let runs = || groups.iter().flat_map(|g| &g.runs);
    // A score may lack only its time, if the run was killed at that moment.
    let of = |run: &History, axis: Axis| run.scores.iter().filter(|s| s.costs.on(axis).is_some()).count();
    let known = |axis: Axis| runs().all(|run| of(run, axis) >= run.scores.len().min(2));
    let mut axes: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| known(*axis)).collect();
    let budget = runs().next().map_or(Axis::Rollouts, |run| {
        let (limits, ceilings) = (run.head.limits, run.head.ceilings);
        match (limits.run_rollouts, limits.run_tokens, ceilings.flops, ceilings.seconds) {
            (Some(_), ..) => Axis::Rollouts,
            (_, Some(_), ..) => Axis::Tokens,
            (_, _, Some(_), _) => Axis::Flops,
            (.., Some(_)) => Axis::Seconds,
            _ => Axis::Rollouts,
        }
    });
    let main = asked.unwrap_or(if axes.contains(&budget) { budget } else { Axis::Rollouts });
    if !axes.contains(&main) {
        let keys: Vec<String> = axes.iter().map(|axis| format!("`{}`", axis.key())).collect();
        return Err(format!("not every run recorded its {}; all recorded {}", main.words(), keys.join(", ")));
    }
    axes.retain(|axis| *axis != main);
    axes.insert(0, main);
    Ok(axes)
}

/// Returns a run's cost at its last score with a known cost.
fn cost(history: &History, axis: Axis) -> Option<f64> {
    history.scores.iter().rev().find_map(|s| s.costs.on(axis))
}

/// Returns the arms' accuracies against an axis, each as far as all its runs go.
fn curves(groups: &[Runs], axis: Axis) -> Vec<Curve> {
    let curve = |(arm, group): (usize, &Runs)| {
        let runs: Vec<Vec<(f64, f64)>> = group
            .runs
            .iter()
            .map(|run| rising(run.scores.iter().filter_map(|s| Some((s.costs.on(axis)?, s.accuracy)))))
            .collect();
        Curve { axis, arm, points: mean_curve(&runs) }
    };
    groups.iter().enumerate().map(curve).collect()
}

/// Merges points of equal cost: the last one counts. The points are in the order of their costs.
fn rising(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = Vec::new();
    for point in points {
        match all.last_mut() {
            Some(last) if last.0 == point.0 => *last = point,
            _ => all.push(point),
        }
    }
    all
}

/// Returns the mean over runs of curves with different points, with its band. It has evenly spaced points
/// from the latest start to the earliest end.
fn mean_curve(runs: &[Vec<(f64, f64)>]) -> Vec<(f64, Estimate)> {
    let first = runs.iter().map(|r| r.first().map_or(f64::INFINITY, |p| p.0)).fold(0.0, f64::max);
    let last = runs.iter().map(|r| r.last().map_or(0.0, |p| p.0)).fold(f64::INFINITY, f64::min);
    if !(first.is_finite() && last.is_finite() && last >= first) {
        return Vec::new();
    }
    let points = if last > first { POINTS } else { 0 };
    let grid: Vec<f64> = (0..=points).map(|i| even(first, last, i, points)).collect();
    let rows: Vec<Vec<f64>> =
        runs.iter().map(|run| grid.iter().filter_map(|x| between(run, *x)).collect()).collect();
    let Ok(scores) = Scores::new(&rows) else { return Vec::new() };
    let Ok(band) = band(&Bootstrap::seeded(1, 2000), &scores, Aggregate::Mean) else { return Vec::new() };
    let several = runs.len() > 1;
    grid.into_iter()
        .enumerate()
        .map(|(i, x)| {
            let end = |ends: &[f64]| several.then_some(ends[i]);
            (x, Estimate { value: band.middle[i], low: end(&band.low), high: end(&band.high) })
        })
        .collect()
}

/// Returns the `i`-th of `steps` even steps from `first` to `last`; the last one is exactly `last`.
fn even(first: f64, last: f64, i: usize, steps: usize) -> f64 {
    if i >= steps { last.max(first) } else { (first + (last - first) * i as f64 / steps as f64).min(last) }
}

/// Interpolates a curve linearly at `x`; `None` outside of its points.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.iter().position(|p| p.0 >= x)?;
    let (x1, y1) = points[after];
    if x1 == x || after == 0 {
        return (x1 == x).then_some(y1);
    }
    let (x0, y0) = points[after - 1];
    Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
}

/// Converts an estimate for a report: one run has no interval.
fn with_ends(estimate: Result<statistics::Estimate, statistics::Unfit>, runs: usize) -> Option<Estimate> {
    let estimate = estimate.ok()?;
    let end = |x: f64| (runs > 1 && x.is_finite()).then_some(x);
    let (low, high) = (end(estimate.interval.low), end(estimate.interval.high));
    Some(Estimate { value: estimate.value, low, high })
}

/// Returns a mean over runs, with its interval.
fn mean(values: &[f64]) -> Estimate {
    let scores = Scores::of_one_task(values);
    let estimate = scores.and_then(|scores| statistics::aggregate(&bootstrap(), &scores, Aggregate::Mean));
    with_ends(estimate, values.len()).unwrap_or(Estimate { value: f64::NAN, low: None, high: None })
}

fn title(groups: &[Runs]) -> String {
    let runs: usize = groups.iter().map(|g| g.runs.len()).sum();
    let mut seeds: Vec<u64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.head.seed)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let count = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let arms = if groups.len() == 1 { "1 policy".to_owned() } else { format!("{} policies", groups.len()) };
    format!("{arms}, {}, {}", count(seeds.len(), "seed"), count(runs, "run"))
}

/// Returns the final state of a run.
fn state(history: &History) -> State {
    match &history.end {
        Some(end) if end.normal => State::Finished,
        Some(_) => State::Failed,
        None => State::Unfinished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_no_value_outside_of_its_points() {
        let points = [(1.0, 0.0), (3.0, 1.0)];
        assert_eq!(between(&points, 2.0), Some(0.5));
        assert_eq!(between(&points, 1.0), Some(0.0));
        assert_eq!(between(&points, 3.0), Some(1.0));
        assert_eq!((between(&points, 0.5), between(&points, 3.5)), (None, None));
    }

    #[test]
    fn a_mean_curve_goes_as_far_as_all_runs_do() {
        let curve = mean_curve(&[vec![(0.0, 0.0), (10.0, 1.0)], vec![(0.0, 0.0), (4.0, 0.8)]]);
        let (x, y) = curve[curve.len() - 1];
        assert!(x == 4.0 && (y.value - 0.6).abs() < 1e-12, "{y:?}");
        assert!(y.low.is_some());
        let one = mean_curve(&[vec![(0.0, 0.25)]]);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].1, Estimate { value: 0.25, low: None, high: None });
    }
}
