//! The pace of a run and the time that it still takes, from its record and its times.

use std::collections::BTreeMap;

use allot_record::{Head, Seconds, StepEnd, Time};
use allot_report::History;

/// Number of last steps over which a rate is taken.
pub const WINDOW: u32 = 20;

/// A run's pace. Values that the run does not report are `None`: a simulation keeps no times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Rollouts per second over the last steps, without evaluation.
    pub rollouts: Option<f64>,
    /// Generated tokens per second, likewise.
    pub tokens: Option<f64>,
    /// Seconds until the run reaches the nearest of its limits, evaluation and checkpoints included.
    pub left: Option<f64>,
    /// Duration of the longest step so far in seconds, evaluation and checkpoints included.
    pub longest: Option<f64>,
    /// Used share of the limit that is nearest, from 0 to 1.
    pub over: f64,
}

/// Amounts that a run has used or may use: steps, rollouts, tokens, FLOPs, seconds of its steps.
type Used<T> = [T; 5];

/// A run's totals at the end of a step.
#[derive(Clone, Copy)]
struct Moment {
    used: Used<f64>,
    /// Total seconds, evaluation and checkpoints included.
    all: f64,
}

/// Computes the pace of a run.
pub fn of(history: &History, times: &[Time]) -> Pace {
    let times = seconds(times);
    let most = most(&history.head);
    let mut pace = Pace { over: over(history, &times, &most), ..Pace::default() };
    let moments: Vec<Moment> = moments(history, &times);
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return pace };
    let longest = moments.windows(2).map(|pair| pair[1].all - pair[0].all).fold(first.all, f64::max);
    pace.longest = Some(longest).filter(|seconds| seconds.is_finite());
    let near = |m: &&Moment| m.used[0] + f64::from(WINDOW) >= last.used[0];
    let recent = moments.iter().find(near).unwrap_or(first);
    let gone: Used<f64> = std::array::from_fn(|i| last.used[i] - recent.used[i]);
    let [steps, rollouts, tokens, _, seconds] = gone;
    if steps <= 0.0 || seconds <= 0.0 {
        return pace;
    }
    let rate = |n: f64| Some(n / seconds).filter(|rate| rate.is_finite());
    (pace.rollouts, pace.tokens) = (rate(rollouts), rate(tokens));
    if history.end.is_none() {
        // Evaluation is rare, so its share of a step is averaged over the whole run.
        let beside = (last.all - first.all) - (last.used[4] - first.used[4]);
        let step = seconds / steps + (beside / (last.used[0] - first.used[0])).max(0.0);
        let to = |i: usize| Some((most[i]? - last.used[i]).max(0.0) / (gone[i] / steps));
        let left = (0..5).filter_map(to).filter(|n| !n.is_nan()).fold(f64::INFINITY, f64::min);
        pace.left = Some(left * step).filter(|left| left.is_finite());
    }
    pace
}

/// Returns seconds by number of finished steps. The last entry of a repeated step counts.
fn seconds(times: &[Time]) -> BTreeMap<u32, Seconds> {
    let step = |time: &Time| match time {
        Time::Step { steps, seconds } => Some((*steps, *seconds)),
        Time::Machine(_) => None,
    };
    times.iter().filter_map(step).collect()
}

/// Returns the totals at the start and after each step, as far as their times are known.
fn moments(history: &History, times: &BTreeMap<u32, Seconds>) -> Vec<Moment> {
    let all = |s: &Seconds| s.of_steps() + s.evaluating + s.saving;
    let start = times.get(&0).map(|s| Moment { used: [0.0, 0.0, 0.0, 0.0, s.of_steps()], all: all(s) });
    let ends = history.steps.iter().filter_map(|step| {
        let seconds = times.get(&(step.end.step.saturating_add(1)))?;
        Some(Moment { used: used(&step.end, seconds.of_steps()), all: all(seconds) })
    });
    start.into_iter().chain(ends).collect()
}

fn used(end: &StepEnd, seconds: f64) -> Used<f64> {
    let (spent, flops) = (&end.spent, end.compute.flops.total());
    [f64::from(end.step) + 1.0, spent.run_rollouts as f64, spent.run_tokens as f64, flops, seconds]
}

/// Returns the limits in the run's head.
fn most(head: &Head) -> Used<Option<f64>> {
    [
        Some(f64::from(head.run.steps)),
        head.limits.run_rollouts.map(|n| n as f64),
        head.limits.run_tokens.map(|n| n as f64),
        head.ceilings.flops,
        head.ceilings.seconds,
    ]
}

fn over(history: &History, times: &BTreeMap<u32, Seconds>, most: &Used<Option<f64>>) -> f64 {
    let Some(step) = history.steps.last() else { return 0.0 };
    let last = times.last_key_value().map_or(0.0, |(_, seconds)| seconds.of_steps());
    let shares = used(&step.end, last).into_iter().zip(most).filter_map(|(used, most)| Some(used / (*most)?));
    shares.filter(|share| share.is_finite()).fold(0.0, f64::max).clamp(0.0, 1.0)
}
