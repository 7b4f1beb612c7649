//! Uses of rollouts, over an arm's runs and over time.

use super::{POINTS, Runs, mean, mean_curve};
use crate::axis::Axis;
use crate::history::{Fates, History, Step};
use crate::report::{Told, Trend, Use};

/// Returns the fates of each arm's rollouts.
pub fn uses(groups: &[Runs]) -> Vec<Use> {
    groups.iter().enumerate().map(|(arm, group)| used(arm, group)).collect()
}

fn used(arm: usize, group: &Runs) -> Use {
    let mut fates = Fates::default();
    let mut ages: Vec<u64> = Vec::new();
    let (mut pilots, mut commits, mut truncated) = (0, 0, 0);
    for run in &group.runs {
        fates.add(&run.fates);
        let (p, c, t) = run.unfinished_step();
        (pilots, commits, truncated) = (pilots + p, commits + c, truncated + t);
        for step in &run.steps {
            pilots += step.pilots;
            commits += step.commits;
            truncated += step.truncated;
            ages.resize(ages.len().max(step.ages.len()), 0);
            ages.iter_mut().zip(&step.ages).for_each(|(all, one)| *all += one);
        }
    }
    let each = |of: &dyn Fn(&Step) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> =
            group.runs.iter().map(|run| run.steps.iter().rev().find_map(of)).collect();
        values.filter(|values| !values.is_empty()).map(|values| mean(&values).value)
    };
    let costs = [
        ("prompt tokens", each(&|s| Some(s.costs.compute.prompt_tokens as f64))),
        ("tokens read from environments", {
            let read = each(&|s| Some(s.costs.compute.read_tokens as f64));
            read.filter(|read| *read > 0.0)
        }),
        ("generated tokens", each(&|s| Some(s.costs.spent.run_tokens as f64))),
        ("trained tokens", each(&|s| Some(s.costs.compute.trained_tokens as f64))),
        ("model updates", {
            let updates = |r: &History| r.steps.iter().filter(|s| s.end.updated).count() as f64;
            Some(mean(&group.runs.iter().map(updates).collect::<Vec<f64>>()).value)
        }),
        ("optimizer steps", each(&|s| Some(s.costs.compute.optimizer_steps as f64))),
        ("prefill FLOPs", each(&|s| Some(s.costs.compute.flops.prefill))),
        ("decode FLOPs", each(&|s| Some(s.costs.compute.flops.decode))),
        ("training FLOPs", each(&|s| Some(s.costs.compute.flops.training))),
        ("seconds", each(&|s| s.costs.seconds)),
    ];
    Use {
        arm,
        runs: group.runs.len(),
        sampled: pilots + commits,
        pilots,
        commits,
        truncated,
        fates,
        ages,
        costs: costs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
    }
}

/// Returns the trends of step statistics of each arm, against the main axis.
pub fn trends(groups: &[Runs], axis: Axis) -> Vec<Trend> {
    let told = [Told::Effective, Told::Useful, Told::Reward, Told::TrainedReward, Told::Age];
    let one = |(arm, group): (usize, &Runs), told: Told| {
        let runs: Vec<Vec<(f64, f64)>> = group.runs.iter().map(|run| binned(run, told, axis)).collect();
        Trend { arm, told, points: mean_curve(&runs) }
    };
    let each = |told| groups.iter().enumerate().map(move |group| one(group, told));
    told.into_iter().flat_map(each).filter(|trend| !trend.points.is_empty()).collect()
}

/// Returns a statistic of each step, as a ratio of sums in bins of cost. Single steps are too noisy and too
/// many for a figure.
fn binned(run: &History, told: Told, axis: Axis) -> Vec<(f64, f64)> {
    let end = run.steps.iter().rev().find_map(|s| s.costs.on(axis)).unwrap_or(0.0);
    let bins = (POINTS / 2).min(run.steps.len().max(1));
    let mut sums = vec![(0.0, 0.0); bins];
    for step in &run.steps {
        let Some(cost) = step.costs.on(axis).filter(|_| end > 0.0) else { continue };
        let (part, whole) = share(step, told);
        // A step's cost is that after it, so the last step belongs to the last bin.
        let bin = ((cost / end * bins as f64).ceil() as usize).clamp(1, bins) - 1;
        sums[bin].0 += part;
        sums[bin].1 += whole;
    }
    let middle = |bin: usize| end * (bin as f64 + 0.5) / bins as f64;
    let filled = sums.into_iter().enumerate().filter(|(_, (_, whole))| *whole > 0.0);
    filled.map(|(bin, (part, whole))| (middle(bin), part / whole)).collect()
}

/// Returns the numerator and denominator of a step's statistic.
fn share(step: &Step, told: Told) -> (f64, f64) {
    let (end, sampled) = (&step.end, (step.pilots + step.commits) as f64);
    let trained = end.trained as f64;
    match told {
        Told::Effective => (end.effective as f64, trained),
        Told::Useful => (end.effective as f64, sampled),
        Told::Reward => (end.reward * sampled, sampled),
        Told::TrainedReward => (step.trained_reward * trained, trained),
        Told::Age => (end.mean_age * trained, trained),
    }
}
