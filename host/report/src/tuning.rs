//! A tuning: results of each arm's trials on separate seeds, the winning trial, and the cost of the
//! declared setting.
//!
//! Trials are dropped by successive halving (Jamieson and Talwalkar 2016). As in Li et al. 2018, one in so
//! many goes on from a rung to the next, where it may spend as many times more. The declared setting is the
//! first trial and is never dropped, so that the gain from tuning is known.

use std::cmp::Ordering;

use allot_allocation::Compute;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::axis::{Axis, Costs};
use crate::history::History;
use crate::number::{percent_tick, shown};

/// The result of a tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Whether all combinations were tried: then there is no winner.
    pub grid: bool,
    /// The criterion by which trials are ranked.
    pub goal: Goal,
    /// The seeds of trials.
    pub seeds: Vec<u64>,
    /// Share of the budget that a trial may spend by each rung.
    pub shares: Vec<f64>,
    /// The arms.
    pub arms: Vec<TunedArm>,
}

/// The criterion by which trials are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The accuracy whose cost counts. If `None`, the final accuracy counts.
    pub target: Option<f64>,
    /// The axis of costs.
    pub axis: Axis,
}

/// The trials of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedArm {
    /// Name of the arm.
    pub name: String,
    /// The tuned settings.
    pub ranges: Vec<Tuned>,
    /// Its trials, the declared setting first.
    pub trials: Vec<Trial>,
    /// Number of the winning trial.
    pub best: u32,
}

/// A tuned setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Its key in the config.
    pub key: String,
    /// Smallest value, if it is numeric.
    pub low: Option<f64>,
    /// Largest value, if it is numeric.
    pub high: Option<f64>,
    /// Whether it was drawn, or its values are spaced, on a logarithmic scale.
    pub log: bool,
}

/// A trial: one setting, run on the tuning's seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its number; 0 is the declared setting.
    pub number: u32,
    /// Its values of the tuned settings, in the order of the ranges; null if the config does not set it.
    pub values: Vec<Value>,
    /// Its result at each rung that it reached.
    pub rungs: Vec<Measure>,
    /// Total cost of its runs.
    pub costs: Costs,
    /// Reason why runs of it failed, if any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Result of a trial by the end of a rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Number of its runs.
    pub runs: u32,
    /// Number of those that reached the target.
    pub reached: u32,
    /// Geometric mean of their costs to reach it.
    pub cost: Option<f64>,
    /// Mean of the last accuracies; `None` if a run failed.
    pub accuracy: Option<f64>,
}

/// Result of one run by the end of a rung.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Its cost to reach the target, if it did.
    pub cost: Option<f64>,
    /// Its last accuracy.
    pub accuracy: f64,
}

impl Seen {
    /// Returns the result of a run, from its scores `within` the rung. Scores are not interpolated: a
    /// target is reached at the first evaluation at or above it, as in the report.
    pub fn of(history: &History, goal: Goal, within: impl Fn(u32, &Costs) -> bool) -> Option<Self> {
        let scores: Vec<_> =
            history.scores.iter().filter(|s| s.steps == 0 || within(s.steps, &s.costs)).collect();
        let there = scores.iter().find(|s| goal.target.is_some_and(|target| s.accuracy >= target));
        let cost =
            there.map(|s| if s.steps == 0 { 0.0 } else { s.costs.on(goal.axis).unwrap_or(f64::INFINITY) });
        Some(Self { cost, accuracy: scores.last()?.accuracy })
    }
}

impl Measure {
    /// Returns the result of a trial from its runs; `None` is a failed run.
    pub fn of(seen: &[Option<Seen>]) -> Self {
        let runs = seen.len() as u32;
        let all: Option<Vec<Seen>> = seen.iter().copied().collect();
        let costs: Vec<f64> = seen.iter().flatten().filter_map(|s| s.cost).collect();
        let cost = match costs[..] {
            // Exactly, without rounding by logarithms.
            [one] => one,
            _ => (costs.iter().map(|c| c.ln()).sum::<f64>() / costs.len() as f64).exp(),
        };
        Self {
            runs,
            reached: costs.len() as u32,
            cost: (!costs.is_empty()).then_some(cost),
            accuracy: all.map(|all| all.iter().map(|s| s.accuracy).sum::<f64>() / f64::from(runs.max(1))),
        }
    }

    /// Orders two results, the better one first: the one that reached the target on more seeds, then the
    /// cheaper one, then the more accurate one. A failed trial comes last.
    pub fn order(&self, other: &Self) -> Ordering {
        let cost = |m: &Self| m.cost.unwrap_or(f64::INFINITY);
        let accuracy = |m: &Self| m.accuracy.unwrap_or(-1.0);
        let failed = |m: &Self| m.accuracy.is_none();
        failed(self)
            .cmp(&failed(other))
            .then(other.reached.cmp(&self.reached))
            .then(cost(self).total_cmp(&cost(other)))
            .then(accuracy(other).total_cmp(&accuracy(self)))
    }

    /// Whether all of its runs reached the target, so that it need not go on.
    pub fn is_settled(&self) -> bool {
        self.reached == self.runs
    }
}

/// Returns the trials of a rung, the best first; of equal ones, the one with the lower number.
pub fn ranked(rung: &[(u32, Measure)]) -> Vec<u32> {
    let mut all = rung.to_vec();
    all.sort_by(|a, b| a.1.order(&b.1).then(a.0.cmp(&b.0)));
    all.into_iter().map(|(number, _)| number).collect()
}

/// Returns the trials that go on from a rung, by number: the best `keep`, and the declared setting.
pub fn promoted(rung: &[(u32, Measure)], keep: usize) -> Vec<u32> {
    let mut kept: Vec<u32> = ranked(rung).into_iter().take(keep).collect();
    if rung.iter().any(|(number, _)| *number == 0) && !kept.contains(&0) {
        kept.push(0);
    }
    kept.sort_unstable();
    kept
}

impl Trial {
    /// Returns its last result.
    pub fn last(&self) -> Measure {
        self.rungs.last().copied().unwrap_or_default()
    }
}

/// Part of a range, at each end, in which a best value may not be the true best.
const NEAR: f64 = 0.05;

impl TunedArm {
    /// Returns the winning trial.
    pub fn winner(&self) -> &Trial {
        self.trials.iter().find(|trial| trial.number == self.best).unwrap_or(&self.trials[0])
    }

    /// Returns the trial of the declared setting.
    pub fn declared(&self) -> &Trial {
        &self.trials[0]
    }

    /// Returns the settings whose best value is at an end of its range, with that value: there may be
    /// better values beyond.
    pub fn edges(&self) -> Vec<(&Tuned, &Value)> {
        let at_end = |(tuned, value): &(&Tuned, &Value)| {
            let place = value.as_f64().and_then(|x| tuned.place(x));
            place.is_some_and(|place| !(NEAR..=1.0 - NEAR).contains(&place))
        };
        self.ranges.iter().zip(&self.winner().values).filter(at_end).collect()
    }

    /// Returns how many trials were dropped after a rung, counted from 0, though their result was that of one that went on: then
    /// their numbers decided. The declared setting goes on without being compared.
    pub fn undecided(&self, rung: usize) -> usize {
        let others = self.trials.iter().filter(|trial| trial.number > 0 && trial.rungs.len() > rung);
        let (dropped, kept): (Vec<&Trial>, Vec<&Trial>) =
            others.partition(|trial| trial.rungs.len() == rung + 1);
        let equal = |trial: &&&Trial| {
            let equal = |other: &&Trial| trial.rungs[rung].order(&other.rungs[rung]) == Ordering::Equal;
            kept.iter().any(equal)
        };
        dropped.iter().filter(equal).count()
    }

    /// Returns the total cost of its trials.
    pub fn costs(&self) -> Costs {
        self.trials
            .iter()
            .fold(Costs { seconds: Some(0.0), ..Costs::default() }, |sum, trial| sum.plus(&trial.costs))
    }
}

impl Tuning {
    /// Keys of the tuned settings of all arms.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.arms.iter().flat_map(|arm| &arm.ranges).map(|tuned| tuned.key.as_str())
    }

    /// Returns a sentence for each range with a best value at one of its ends.
    pub fn edges(&self) -> Vec<String> {
        let mut found: Vec<(&Tuned, Vec<String>)> = Vec::new();
        for arm in &self.arms {
            for (tuned, value) in arm.edges() {
                let words = format!("{} for `{}`", shown(value), arm.name);
                match found.iter_mut().find(|(known, _)| *known == tuned) {
                    Some((_, all)) => all.push(words),
                    None => found.push((tuned, vec![words])),
                }
            }
        }
        let words = |(tuned, all): (&Tuned, Vec<String>)| {
            let [low, high] = [tuned.low, tuned.high].map(|end| shown(&Value::from(end.unwrap_or(f64::NAN))));
            let whole = |end: &str| end.trim_end_matches(".0").to_owned();
            format!(
                "tuning found the best `{}` at an end of its range, {} to {} ({}): beyond it there may be a better one",
                tuned.key,
                whole(&low),
                whole(&high),
                all.join(", ")
            )
        };
        found.into_iter().map(words).collect()
    }
}

impl Tuning {
    /// Returns a sentence for each arm and rung that dropped trials without a difference in their results.
    pub fn undecided(&self) -> Vec<String> {
        let rungs = if self.grid { 0 } else { self.shares.len().saturating_sub(1) };
        let arms = |rung: usize| self.arms.iter().map(move |arm| (rung, arm));
        (0..rungs)
            .flat_map(arms)
            .filter_map(|(rung, arm)| {
                let (count, share) = (arm.undecided(rung), percent_tick(self.shares[rung]));
                let (trials, had) = if count == 1 { ("trial", "it had") } else { ("trials", "they had") };
                (count > 0).then(|| {
                    format!(
                        "tuning dropped {count} {trials} of `{}` at {share} of the budget by number alone: \
                         {had} the same result as one that went on, so that other settings may be better \
                         (`compare.tune.rungs` = 1 gives each trial all of it)",
                        arm.name
                    )
                })
            })
            .collect()
    }
}

impl Tuned {
    /// Returns the position of a value between the smallest and the largest, from 0 to 1.
    pub fn place(&self, x: f64) -> Option<f64> {
        let (low, high) = (self.low?, self.high?);
        let scaled = |x: f64| if self.log { x.ln() } else { x };
        let place = (scaled(x) - scaled(low)) / (scaled(high) - scaled(low));
        place.is_finite().then_some(place)
    }
}

impl Costs {
    /// Returns the sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        sum.spent.run_rollouts += other.spent.run_rollouts;
        sum.spent.run_tokens += other.spent.run_tokens;
        let mut compute: Compute = sum.compute;
        compute += other.compute;
        Self { compute, seconds: sum.seconds.zip(other.seconds).map(|(a, b)| a + b), ..sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(reached: u32, cost: Option<f64>, accuracy: f64) -> Measure {
        Measure { runs: 1, reached, cost, accuracy: Some(accuracy) }
    }

    #[test]
    fn trials_that_reached_the_target_go_first_by_cost_and_others_by_accuracy() {
        let failed = Measure { runs: 1, reached: 0, cost: None, accuracy: None };
        let rung = [
            (0, measure(0, None, 0.3)),
            (1, measure(1, Some(900.0), 0.5)),
            (2, failed),
            (3, measure(1, Some(500.0), 0.4)),
            (4, measure(0, None, 0.35)),
            (5, measure(1, Some(500.0), 0.41)),
        ];
        assert_eq!(ranked(&rung), [5, 3, 1, 4, 0, 2]);
    }

    #[test]
    fn the_best_go_on_and_the_declared_setting_does() {
        let rung: Vec<(u32, Measure)> = (0..9).map(|n| (n, measure(0, None, f64::from(n) / 10.0))).collect();
        assert_eq!(promoted(&rung, 3), [0, 6, 7, 8]);
        assert_eq!(promoted(&rung[6..], 2), [7, 8], "one that is not in the rung does not come back");
        let first: Vec<(u32, Measure)> = (0..9).map(|n| (n, measure(0, None, 0.5))).collect();
        assert_eq!(promoted(&first, 3), [0, 1, 2], "equals in their order");
    }

    #[test]
    fn halving_finds_the_best_of_steady_curves_for_a_fraction_of_the_price() {
        // Trial n comes to n percent at the end, and to its share of that before.
        let (mut alive, mut spent): (Vec<u32>, f64) = ((0..27).collect(), 0.0);
        let mut before = 0.0;
        for share in [1.0 / 9.0, 1.0 / 3.0, 1.0] {
            let rung: Vec<_> =
                alive.iter().map(|n| (*n, measure(0, None, f64::from(*n) * share / 100.0))).collect();
            spent += rung.len() as f64 * (share - before);
            before = share;
            alive = promoted(&rung, rung.len().div_ceil(3));
        }
        assert!(alive.contains(&26) && alive.contains(&0));
        assert!(spent < 9.0, "27 runs as a whole would have cost 27: {spent}");
    }

    #[test]
    fn several_seeds_make_one_measure() {
        let seen = |cost, accuracy| Some(Seen { cost, accuracy });
        let both = Measure::of(&[seen(Some(100.0), 0.5), seen(Some(400.0), 0.7)]);
        assert!((both.cost.expect("both reached it") - 200.0).abs() < 1e-9 && both.is_settled());
        assert!((both.accuracy.expect("none failed") - 0.6).abs() < 1e-12);
        let half = Measure::of(&[seen(Some(100.0), 0.5), seen(None, 0.4)]);
        assert_eq!((half.reached, half.is_settled()), (1, false));
        assert_eq!(both.order(&half), Ordering::Less);
        let broken = Measure::of(&[seen(Some(100.0), 0.5), None]);
        assert_eq!(half.order(&broken), Ordering::Less);
    }

    #[test]
    fn trials_that_were_dropped_by_number_alone_are_told() {
        let trial = |number, accuracies: &[f64]| Trial {
            number,
            values: vec![],
            rungs: accuracies.iter().map(|a| measure(0, None, *a)).collect(),
            costs: Costs::default(),
            failed: None,
        };
        let arm = |name: &str, trials| TunedArm { name: name.to_owned(), ranges: vec![], trials, best: 1 };
        // Of nine trials that came to nothing three go on, and of these one; the declared setting always does.
        let equal = |n: u32| trial(n, if n < 3 { &[0.1, 0.2, 0.3][..] } else { &[0.1] });
        let ranked = |n: u32| trial(n, if n < 3 { &[0.9, 0.2, 0.3][..] } else { &[0.1] });
        let declared = [trial(0, &[0.1, 0.2]), trial(1, &[0.3, 0.4]), trial(2, &[0.1])];
        let arms = vec![
            arm("equal", (0..9).map(equal).collect()),
            arm("ranked", (0..9).map(ranked).collect()),
            arm("declared", declared.into()),
        ];
        let goal = Goal { target: None, axis: Axis::Rollouts };
        let tuning = Tuning { grid: false, goal, seeds: vec![1], shares: vec![0.11, 0.33, 1.0], arms };
        assert_eq!(
            tuning.undecided(),
            [
                "tuning dropped 6 trials of `equal` at 11\u{a0}% of the budget by number alone: they had the same result as one that \
              went on, so that other settings may be better (`compare.tune.rungs` = 1 gives each trial all of it)"
            ]
        );
        assert!(Tuning { grid: true, ..tuning }.undecided().is_empty());
    }

    #[test]
    fn a_best_value_at_an_end_of_its_range_is_told() {
        let tuned = |key: &str, low, high, log| Tuned { key: key.to_owned(), low, high, log };
        let trial = |number, values: Vec<Value>| Trial {
            number,
            values,
            rungs: vec![],
            costs: Costs::default(),
            failed: None,
        };
        let arm = TunedArm {
            name: "one".to_owned(),
            ranges: vec![
                tuned("optimizer.learning_rate", Some(1e-5), Some(1e-3), true),
                tuned("run.groups", Some(2.0), Some(16.0), true),
                tuned("run.order", None, None, false),
            ],
            trials: vec![
                trial(0, vec![Value::Null, Value::Null, Value::Null]),
                trial(1, vec![1e-4.into(), 2.into(), "shuffled".into()]),
            ],
            best: 1,
        };
        let edges: Vec<&str> = arm.edges().into_iter().map(|(tuned, _)| tuned.key.as_str()).collect();
        assert_eq!(edges, ["run.groups"]);
    }
}
