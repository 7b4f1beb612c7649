//! What it costs to reach an accuracy: runs that never do are kept, as taking longer than they ran.

use super::{CONFIDENCE, Runs, bootstrap, cost, told};
use crate::axis::Axis;
use crate::history::History;
use crate::number::percent_tick;
use crate::report::{Estimate, Reached, Target};
use crate::statistics::{Survival, Wait, difference, holm, percentile, ratio_of_means};

/// The targets asked for, or else what the baseline comes to at the end: with a note that it was chosen
/// after the fact.
pub fn wanted(groups: &[Runs], baseline: usize, asked: &[f64], notes: &mut Vec<String>) -> Vec<f64> {
    if !asked.is_empty() {
        let mut asked = asked.to_vec();
        asked.dedup();
        for target in &asked {
            let starts = groups.iter().flat_map(|g| &g.runs).filter_map(|r| r.scores.first());
            let there = starts.filter(|s| s.accuracy >= *target).count();
            if there > 0 {
                let percent = percent_tick(*target);
                notes.push(format!("{there} runs are at {percent} before their first step: a cost of 0"));
            }
        }
        return asked;
    }
    let last: Vec<f64> =
        groups[baseline].runs.iter().filter_map(|r| r.scores.last()).map(|s| s.accuracy).collect();
    let starts = groups.iter().flat_map(|g| &g.runs).filter_map(|r| r.scores.first());
    let start = starts.map(|s| s.accuracy).fold(0.0, f64::max);
    // A whole percent, so that nobody takes it for more exact than it is.
    let target = percentile(&last, 0.5).map(|median| (median * 100.0 + 1e-9).floor() / 100.0);
    target
        .filter(|target| *target > start)
        .inspect(|target| {
            notes.push(format!(
                "no target was set; {} is what half of the runs of `{}` come to, and was chosen after the fact",
                percent_tick(*target),
                groups[baseline].name
            ));
        })
        .into_iter()
        .collect()
}

/// The cost to each target on each axis.
pub fn targets(groups: &[Runs], baseline: usize, wanted: &[f64], axes: &[Axis]) -> Vec<Target> {
    let one = |accuracy: f64, axis: Axis| {
        let horizon = horizon(&groups.iter().collect::<Vec<_>>(), axis);
        let goal = Goal { accuracy, axis, horizon };
        let mut rows: Vec<Reached> =
            (0..groups.len()).map(|arm| reached(groups, arm, baseline, goal)).collect();
        // Arms that could not be tested belong to the family all the same.
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

/// Up to where every finished run was looked at; without one, as far as any was.
fn horizon(groups: &[&Runs], axis: Axis) -> f64 {
    let ends = groups.iter().flat_map(|g| &g.runs).filter_map(|run| cost(run, axis));
    let finished = groups.iter().flat_map(|g| g.finished()).filter_map(|run| cost(run, axis));
    let least = finished.fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { ends.fold(0.0, f64::max) }
}

/// What is to be reached, what it is paid in, and how far runs were looked at.
#[derive(Clone, Copy)]
struct Goal {
    accuracy: f64,
    axis: Axis,
    horizon: f64,
}

impl Goal {
    /// A run's cost, cut at the horizon; none where it ended before, and without.
    fn cut(self, run: &History) -> Option<f64> {
        match wait(run, self.accuracy, self.axis)? {
            Wait::Reached(cost) => Some(cost.min(self.horizon)),
            Wait::Longer(cost) => (cost >= self.horizon).then_some(self.horizon),
        }
    }
}

/// Costs to a target of the seeds that an arm and the baseline have, each cut at their horizon; seeds with a
/// run that ended before are not among them.
pub fn paired(arm: &Runs, baseline: &Runs, target: &Target) -> (Vec<f64>, Vec<f64>) {
    let horizon = horizon(&[arm, baseline], target.axis);
    both(arm, baseline, Goal { horizon, accuracy: target.accuracy, axis: target.axis })
}

fn both(arm: &Runs, baseline: &Runs, goal: Goal) -> (Vec<f64>, Vec<f64>) {
    let all = pairs(arm, baseline).into_iter();
    all.filter_map(|(a, b)| Some((goal.cut(a)?, goal.cut(b)?))).unzip()
}

/// How long a run took to an accuracy: up to its first score that has it.
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
    let curve = survival.iter().flat_map(|s| &s.steps).filter(|s| s.reached > 0).map(|s| {
        let (low, high) = (several.then_some(1.0 - s.high), several.then_some(1.0 - s.low));
        (s.time, Estimate { value: 1.0 - s.survival, low, high })
    });
    let curve = curve.collect();
    // A third arm that spent less takes nothing from these two.
    let two = Goal { horizon: horizon(&[&groups[arm], &groups[baseline]], goal.axis), ..goal };
    let (ours, theirs) =
        if arm == baseline { (Vec::new(), Vec::new()) } else { both(&groups[arm], &groups[baseline], two) };
    // Of two arms that never came there nothing can be said.
    let came = |of: &Runs| {
        of.runs.iter().any(|r| matches!(wait(r, goal.accuracy, goal.axis), Some(Wait::Reached(_))))
    };
    let nobody = !came(&groups[arm]) && !came(&groups[baseline]);
    let ratio = if nobody { None } else { told(ratio_of_means(&bootstrap(), &ours, &theirs), ours.len()) };
    let test = difference(CONFIDENCE, &ours, &theirs).ok().and_then(|d| d.test);
    Reached {
        arm,
        reached: waits.iter().filter(|w| matches!(w, Wait::Reached(_))).count(),
        runs: waits.len(),
        median: survival.as_ref().and_then(Survival::median),
        median_low: interval.and_then(|i| i.low).filter(|_| several),
        median_high: interval.and_then(|i| i.high).filter(|_| several),
        restricted: restricted(&groups[arm], &waits, goal),
        ratio,
        pairs: ours.len(),
        p: test.map(|t| t.p_value),
        holm: None,
        curve,
    }
}

/// The restricted mean of the cost, with its interval. Where all runs were looked at up to the horizon it is
/// the mean of costs cut there, and the bootstrap is over these. Else it is Kaplan and Meier's, without an
/// interval, if at least one run was looked at so far.
fn restricted(group: &Runs, waits: &[Wait], goal: Goal) -> Estimate {
    let cut: Vec<f64> = group.runs.iter().filter_map(|run| goal.cut(run)).collect();
    if cut.len() == waits.len() {
        return super::mean(&cut);
    }
    let far = waits.iter().any(|wait| matches!(wait, Wait::Longer(cost) if *cost >= goal.horizon));
    let open = waits.iter().map(|w| w.time()).fold(0.0, f64::max);
    let last = waits.iter().any(|w| matches!(w, Wait::Reached(cost) if *cost >= open));
    let mean = Survival::fit(CONFIDENCE, waits).and_then(|s| s.restricted_mean(goal.horizon));
    let value = if far || last { mean.unwrap_or(f64::NAN) } else { f64::NAN };
    Estimate { value, low: None, high: None }
}

/// The pairs of an arm's and the baseline's runs of one seed.
pub fn pairs<'g>(arm: &'g Runs, baseline: &'g Runs) -> Vec<(&'g History, &'g History)> {
    let other = |run: &History| baseline.runs.iter().find(|b| b.head.seed == run.head.seed);
    arm.runs.iter().filter_map(|run| Some((run, other(run)?))).collect()
}
