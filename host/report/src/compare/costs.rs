//! Cost to reach an accuracy. Runs that never reach it are kept, as taking longer than they ran.

use super::pairing::{pairs, unpaired};
use super::{CONFIDENCE, Runs, cost, with_ends};
use crate::axis::Axis;
use crate::history::History;
use crate::number::percent_tick;
use crate::report::{Estimate, Reached, Target};
use crate::statistics::{
    Bound, Ratio, Step, Survival, Wait, bound, geometric_mean, holm, percentile, ratio, ratio_apart,
};

/// Returns the requested targets, or else the baseline's median final accuracy, with a note that this
/// target was chosen after the fact.
pub fn wanted(groups: &[Runs], baseline: usize, asked: &[f64], notes: &mut Vec<String>) -> Vec<f64> {
    if !asked.is_empty() {
        let mut asked = asked.to_vec();
        asked.dedup();
        for target in &asked {
            let starts = groups.iter().flat_map(|g| &g.runs).filter_map(|r| r.scores.first());
            let there = starts.filter(|s| s.accuracy >= *target).count();
            if there > 0 {
                let percent = percent_tick(*target);
                notes.push(format!("{there} runs reach {percent} before their first step: a cost of 0"));
            }
        }
        return asked;
    }
    let last: Vec<f64> =
        groups[baseline].runs.iter().filter_map(|r| r.scores.last()).map(|s| s.accuracy).collect();
    let starts = groups.iter().flat_map(|g| &g.runs).filter_map(|r| r.scores.first());
    let start = starts.map(|s| s.accuracy).fold(0.0, f64::max);
    // A whole percent, because more digits would suggest too much precision.
    let target = percentile(&last, 0.5).map(|median| (median * 100.0 + 1e-9).floor() / 100.0);
    target
        .filter(|target| *target > start)
        .inspect(|target| {
            notes.push(format!(
                "no target was set; {} is the accuracy that half of the runs of `{}` reach, and was chosen \
                 after the fact",
                percent_tick(*target),
                groups[baseline].name
            ));
        })
        .into_iter()
        .collect()
}

/// Returns the cost to each target on each axis. Ratios and their bounds have intervals at `level`.
pub fn targets(groups: &[Runs], baseline: usize, wanted: &[f64], axes: &[Axis], level: f64) -> Vec<Target> {
    let one = |accuracy: f64, axis: Axis| {
        let horizon = horizon(&groups.iter().collect::<Vec<_>>(), axis);
        let goal = Goal { accuracy, axis, horizon, level };
        let mut rows: Vec<Reached> =
            (0..groups.len()).map(|arm| reached(groups, arm, baseline, goal)).collect();
        // Arms without a test belong to the family, too.
        let others = || (0..rows.len()).filter(|arm| *arm != baseline);
        let tested: Vec<f64> = others().map(|arm| rows[arm].p.unwrap_or(1.0)).collect();
        let corrected: Vec<(usize, f64)> = others().zip(holm(&tested).unwrap_or_default()).collect();
        for (arm, p) in corrected {
            rows[arm].holm = rows[arm].p.map(|_| p);
        }
        Target { accuracy, axis, horizon, rows }
    };
    wanted.iter().flat_map(|accuracy| axes.iter().map(|axis| one(*accuracy, *axis))).collect()
}

/// Returns the distance of evaluations where runs reach a target: the median over runs of the share of that
/// cost that was spent since the previous evaluation.
pub fn resolution(groups: &[Runs], accuracy: f64, axis: Axis) -> Option<f64> {
    let of = |run: &History| {
        let at = run.scores.iter().position(|s| s.accuracy >= accuracy).filter(|at| *at > 0)?;
        let (before, there) = (run.scores[at - 1].costs.on(axis)?, run.scores[at].costs.on(axis)?);
        Some((there - before) / there).filter(|share| share.is_finite())
    };
    let shares: Vec<f64> = groups.iter().flat_map(|g| &g.runs).filter_map(of).collect();
    percentile(&shares, 0.5)
}

/// Returns the cost up to which every finished run was evaluated; without one, the largest of any run.
fn horizon(groups: &[&Runs], axis: Axis) -> f64 {
    let ends = groups.iter().flat_map(|g| &g.runs).filter_map(|run| cost(run, axis));
    let finished = groups.iter().flat_map(|g| g.finished()).filter_map(|run| cost(run, axis));
    let least = finished.fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { ends.fold(0.0, f64::max) }
}

/// A target, the axis of its cost, the end of the budget, and a confidence level.
#[derive(Clone, Copy)]
struct Goal {
    accuracy: f64,
    axis: Axis,
    horizon: f64,
    level: f64,
}

/// An arm's cost to a target relative to the baseline's.
pub enum Against {
    /// All runs of both arms reached it: there is a ratio.
    Ratio(Ratio),
    /// Some runs did not: there are bounds on the ratio.
    Bound(Bound),
    /// A run had reached it before its first step; or the runs are unpaired, and some did not reach it.
    Nothing,
}

/// Compares an arm's costs to a target with the baseline's, at a level. Also returns the number of pairs or, of unpaired runs, the
/// number of runs of the smaller arm.
pub fn against(arm: &Runs, baseline: &Runs, accuracy: f64, axis: Axis, level: f64) -> (Against, usize) {
    // A ratio of the other runs would ignore a run without a partner that did not reach the target.
    let everybody =
        |of: &Runs| of.runs.iter().all(|r| matches!(wait(r, accuracy, axis), Some(Wait::Reached(_))));
    let everybody = everybody(arm) && everybody(baseline);
    let whole = |run: &History| wait(run, accuracy, axis).map(Wait::time);
    if unpaired(arm, baseline) {
        let costs = |of: &Runs| of.runs.iter().filter_map(whole).collect::<Vec<f64>>();
        let found = if everybody { ratio_apart(level, &costs(arm), &costs(baseline)).ok() } else { None };
        return (found.map_or(Against::Nothing, Against::Ratio), arm.runs.len().min(baseline.runs.len()));
    }
    let all: Vec<(Wait, Wait)> = pairs(arm, baseline)
        .into_iter()
        .filter_map(|(a, b)| Some(both_up_to(cost(a, axis)?.min(cost(b, axis)?), [a, b], accuracy, axis)))
        .flatten()
        .collect();
    let count = all.len();
    let (ours, theirs): (Vec<Wait>, Vec<Wait>) = all.into_iter().unzip();
    let found = if everybody {
        let costs = pairs(arm, baseline).into_iter().filter_map(|(a, b)| Some((whole(a)?, whole(b)?)));
        let (ours, theirs): (Vec<f64>, Vec<f64>) = costs.unzip();
        ratio(level, &ours, &theirs).map(Against::Ratio)
    } else {
        bound(level, &ours, &theirs).map(Against::Bound)
    };
    (found.unwrap_or(Against::Nothing), count)
}

/// Returns the waits of both runs of a pair, each observed only as far as both were.
fn both_up_to(end: f64, runs: [&History; 2], accuracy: f64, axis: Axis) -> Option<(Wait, Wait)> {
    let cut = |run: &History| {
        wait(run, accuracy, axis).map(|wait| match wait {
            Wait::Reached(cost) if cost <= end => wait,
            _ => Wait::Longer(end),
        })
    };
    Some((cut(runs[0])?, cut(runs[1])?))
}

/// Returns a run's cost up to its first score with this accuracy.
pub fn wait(run: &History, accuracy: f64, axis: Axis) -> Option<Wait> {
    let first = run.scores.iter().find(|s| s.accuracy >= accuracy);
    match first {
        Some(score) => score.costs.on(axis).map(Wait::Reached),
        None => cost(run, axis).map(Wait::Longer),
    }
}

fn reached(groups: &[Runs], arm: usize, baseline: usize, goal: Goal) -> Reached {
    let waits: Vec<Wait> =
        groups[arm].runs.iter().filter_map(|r| wait(r, goal.accuracy, goal.axis)).collect();
    let survival = Survival::fit(CONFIDENCE, &waits).ok();
    let interval = survival.as_ref().map(Survival::median_interval);
    let several = waits.len() > 1;
    let share = |step: &Step| {
        // Greenwood's formula is not defined where all runs, or none, have reached it.
        let known = several && step.survival > 0.0 && step.survival < 1.0;
        let (low, high) = (known.then_some(1.0 - step.high), known.then_some(1.0 - step.low));
        Estimate { value: 1.0 - step.survival, low, high }
    };
    let steps = || survival.iter().flat_map(|s| &s.steps);
    let nothing = Estimate { value: f64::NAN, low: None, high: None };
    let curve = steps().filter(|s| s.reached > 0).map(|s| {
        let (low, high) = (several.then_some(1.0 - s.high), several.then_some(1.0 - s.low));
        (s.time, Estimate { low, high, ..share(s) })
    });
    let curve = curve.collect();
    let reached: Vec<f64> =
        waits.iter().filter(|w| matches!(w, Wait::Reached(_))).map(|w| w.time()).collect();
    let mean = (reached.len() == waits.len()).then(|| geometric_mean(CONFIDENCE, &reached));
    let mut row = Reached {
        arm,
        reached: reached.len(),
        runs: waits.len(),
        share: steps().take_while(|s| s.time <= goal.horizon).last().map_or(nothing, share),
        median: survival.as_ref().and_then(Survival::median),
        median_low: interval.and_then(|i| i.low).filter(|_| several),
        median_high: interval.and_then(|i| i.high).filter(|_| several),
        mean: mean.and_then(|mean| with_ends(mean, waits.len())),
        ratio: None,
        bound: None,
        pairs: 0,
        unpaired: arm != baseline && unpaired(&groups[arm], &groups[baseline]),
        p: None,
        holm: None,
        curve,
    };
    if arm != baseline {
        let Goal { accuracy, axis, level, .. } = goal;
        let (found, pairs) = against(&groups[arm], &groups[baseline], accuracy, axis, level);
        row.pairs = pairs;
        match found {
            Against::Ratio(ratio) => {
                let (low, high) = (ratio.interval.map(|i| i.low), ratio.interval.map(|i| i.high));
                row.ratio = Some(Estimate { value: ratio.value, low, high });
                row.p = ratio.p_value;
            }
            Against::Bound(bound) => {
                row.p = (bound.known > 0).then_some(bound.p_value);
                row.bound = Some(bound);
            }
            Against::Nothing => {}
        }
    }
    row
}
