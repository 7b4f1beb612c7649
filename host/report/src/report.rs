//! A report as plain data: every number and every sentence in a page, a figure or a table.
//!
//! `compare` makes it. `page`, `figure` and `tables` draw it and compute nothing. As JSON it is
//! `report.json`.

use serde::Serialize;

use crate::axis::{Axis, Costs};
pub use crate::estimate::Estimate;
use crate::history::Fates;
use crate::number::percent_tick;
use crate::statistics::Bound;
use crate::tuning::Tuning;

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// A short description of the comparison.
    pub title: String,
    /// What all runs share, as pairs of name and value.
    pub shared: Vec<(String, String)>,
    /// The main axis of costs.
    pub axis: Axis,
    /// The axes that every run knows, the main one first.
    pub axes: Vec<Axis>,
    /// Whether targets were set in advance: then verdicts on costs come first.
    pub asked: bool,
    /// Confidence level of the intervals: 0.95.
    pub confidence: f64,
    /// Index of the baseline in `arms`.
    pub baseline: usize,
    /// The arms: each is a policy with its settings.
    pub arms: Vec<Arm>,
    /// Reasons why the comparison is not fair.
    pub warnings: Vec<String>,
    /// Runs that were left out or cut short, and other remarks.
    pub notes: Vec<String>,
    /// Verdicts in words, one for each arm except the baseline.
    pub verdicts: Vec<Verdict>,
    /// Accuracy against each axis, for each arm.
    pub curves: Vec<Curve>,
    /// Cost to each target, on each axis.
    pub targets: Vec<Target>,
    /// Accuracy at the end and at its best, for each arm.
    pub finals: Vec<Final>,
    /// Accuracy at the end by part of the held-out problems, for each arm.
    pub parts: Vec<Part>,
    /// Differences to the baseline.
    pub differences: Vec<Difference>,
    /// Fates of the rollouts, for each arm.
    pub uses: Vec<Use>,
    /// Step statistics over the run, against the main axis.
    pub trends: Vec<Trend>,
    /// Keys in which the arms' configs differ.
    pub differing: Vec<Differing>,
    /// Shares of the parts of the data in what each arm learned from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taught: Vec<Taught>,
    /// Distance of evaluations where runs reach the first target: the share of its cost that was spent
    /// since the previous evaluation, median over runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
    /// The tuning of the arms, if they were tuned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Results that hold if the comparison grew after earlier reports; `None` if it did not grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
}

/// A question of a comparison, with the finding for each arm except the baseline.
pub struct Answers<'r> {
    /// The question.
    pub question: String,
    /// Index of each arm, with its finding.
    pub findings: Vec<(usize, &'r Finding)>,
}

impl Report {
    /// Whether arms are compared with the baseline as two samples, not in pairs of one seed: some of them, at least.
    pub fn has_unpaired(&self) -> bool {
        self.differences.iter().any(|row| row.unpaired)
    }

    /// Returns the findings by question; the question set in advance comes first.
    pub fn answers(&self) -> Vec<Answers<'_>> {
        let cost = self.targets.iter().find(|t| t.axis == self.axis).map(|target| Answers {
            question: format!("Cost to {}, in {}", percent_tick(target.accuracy), self.axis.words()),
            findings: self.verdicts.iter().filter_map(|v| Some((v.arm, v.cost.as_ref()?))).collect(),
        });
        let end = Answers {
            question: "Accuracy at the end".to_owned(),
            findings: self.verdicts.iter().map(|v| (v.arm, &v.end)).collect(),
        };
        let all = if self.asked { [cost, Some(end)] } else { [Some(end), cost] };
        all.into_iter().flatten().filter(|answers| !answers.findings.is_empty()).collect()
    }
}

/// A policy with its settings, and its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Arm {
    /// Name of the arm.
    pub name: String,
    /// Name of the policy, with later policies after a swap.
    pub policy: String,
    /// Version of the policy.
    pub version: String,
    /// SHA-256 of the policy's component.
    pub sha256: String,
    /// Its effective settings.
    pub settings: Vec<(String, String)>,
    /// Its runs, by seed.
    pub runs: Vec<RunRow>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// Its folder.
    pub run: String,
    /// Its seed.
    pub seed: u64,
    /// By what looks know it.
    #[serde(skip)]
    pub id: u64,
    /// Its final state.
    pub state: State,
    /// Reason why it ended, in words.
    pub reason: String,
    /// Steps finished.
    pub steps: u32,
    /// Steps that updated the model.
    pub updates: u64,
    /// Its costs.
    pub costs: Costs,
    /// Accuracy before the first step.
    pub start: f64,
    /// The last accuracy.
    pub last: f64,
    /// The best accuracy.
    pub best: f64,
    /// Metrics of its policy, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
}

/// A metric of a policy in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Number of calls that reported it.
    pub calls: u64,
    /// Mean of its values.
    pub mean: f64,
    /// Its last value.
    pub last: f64,
}

/// Final state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It ended normally, and counts in every table.
    Finished,
    /// It goes on or was cut off. It counts in curves and in costs to a target, as far as it goes.
    Unfinished,
    /// It failed. It counts like an unfinished run.
    Failed,
}

/// Accuracy of an arm against an axis: the mean over its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The axis.
    pub axis: Axis,
    /// Index of the arm.
    pub arm: usize,
    /// Cost and accuracy, as far as all runs of the arm go.
    pub points: Vec<(f64, Estimate)>,
}

/// Costs to reach an accuracy, on an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The target accuracy.
    pub accuracy: f64,
    /// The axis.
    pub axis: Axis,
    /// End of the budget: the largest cost up to which every finished run was evaluated.
    pub horizon: f64,
    /// A row for each arm.
    pub rows: Vec<Reached>,
}

/// Cost of an arm to reach a target.
#[derive(Clone, Debug, Serialize)]
pub struct Reached {
    /// Index of the arm.
    pub arm: usize,
    /// Number of runs that reached it.
    pub reached: usize,
    /// Number of all runs. Those that did not reach it are censored: their cost is more than they spent.
    pub runs: usize,
    /// Share of runs that reached it by the horizon: one minus the Kaplan-Meier estimate.
    pub share: Estimate,
    /// Kaplan-Meier median; `None` if fewer than half of the runs reached it.
    pub median: Option<f64>,
    /// Lower end of the median's interval; `None` if it is beyond the observed costs.
    pub median_low: Option<f64>,
    /// Upper end, likewise.
    pub median_high: Option<f64>,
    /// Geometric mean of the cost; `None` if a run did not reach it, or had reached it at the start.
    pub mean: Option<Estimate>,
    /// The baseline's cost divided by this arm's: above 1 the arm is cheaper. `None` for
    /// the baseline, and if a run of either arm did not reach it, or had reached it at the start.
    pub ratio: Option<Estimate>,
    /// Bounds on the ratio, if there is none because some runs did not reach the target. Unpaired runs have none.
    pub bound: Option<Bound>,
    /// Number of seeds in the ratio or bound; of unpaired runs, the runs of the smaller arm.
    pub pairs: usize,
    /// Whether the runs are two samples, not pairs of one seed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpaired: bool,
    /// Two-sided p-value of a difference in cost: Student's t on the logarithms of the pairs, or the sign
    /// test on pairs whose order is known.
    pub p: Option<f64>,
    /// The p-value after Holm's correction over all arms.
    pub holm: Option<f64>,
    /// Share of runs that have reached the target, at each cost where it rises, with its interval.
    pub curve: Vec<(f64, Estimate)>,
}

/// Final accuracy of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct Final {
    /// Index of the arm.
    pub arm: usize,
    /// Number of finished runs.
    pub runs: usize,
    /// Mean accuracy before the first step.
    pub start: f64,
    /// Mean of the last accuracies.
    pub last: Estimate,
    /// Mean of each run's best accuracy. It is biased upwards, because it is selected on the same problems.
    pub best: Estimate,
    /// Interquartile mean of the last accuracies over runs and parts.
    pub iqm: Estimate,
    /// Probability that a run of this arm is better than one of the baseline, over parts. `None` for the
    /// baseline.
    pub improvement: Option<Estimate>,
    /// Other final measurements, by name: pass@k.
    pub more: Vec<(String, Estimate)>,
}

/// An arm's accuracy on one part of the held-out problems.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Index of the arm.
    pub arm: usize,
    /// The part.
    pub part: String,
    /// Mean of the last accuracies.
    pub last: Estimate,
}

/// The difference of an arm's last accuracy to the baseline's, seed by seed or of unpaired runs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Index of the arm.
    pub arm: usize,
    /// Number of seeds that both have finished; of unpaired runs, the finished ones of the smaller arm.
    pub seeds: usize,
    /// Whether the runs are two samples, not pairs of one seed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpaired: bool,
    /// Mean difference, with Student's interval.
    pub mean: Estimate,
    /// p-value of the two-sided t-test, paired or Welch's. `None` with one seed.
    pub p: Option<f64>,
    /// The p-value after Holm's correction over all arms.
    pub holm: Option<f64>,
    /// p-value of the sign-flip test, exact up to 16 seeds; `None` for unpaired runs.
    pub flip: Option<f64>,
    /// Seeds that would detect a difference of this size with a power of 80 %. `None` if more than 1000.
    pub needed: Option<u64>,
}

/// The verdict on an arm compared with the baseline: answers to two questions.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Index of the arm.
    pub arm: usize,
    /// Finding on the cost to the first target; `None` if there is no target.
    pub cost: Option<Finding>,
    /// Finding on the accuracy at the end of the budget.
    pub end: Finding,
}

/// A finding on one question, as a word and as a sentence that agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The word.
    pub kind: Outcome,
    /// The sentence, which names the arm.
    pub words: String,
}

/// The word of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Better than the baseline: cheaper, or more accurate.
    Better,
    /// Worse.
    Worse,
    /// Equal within the margin.
    Same,
    /// The seeds do not decide.
    Inconclusive,
}

/// Results that hold for a comparison that grew after earlier reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Looks {
    /// Whether runs were counted, as in a comparison of finished ones, and not seeds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_runs: bool,
    /// Number of seeds, or runs, in each of the earlier reports.
    pub seeds: Vec<usize>,
    /// Number of looks, this report included. P-values are multiplied by it.
    pub count: usize,
    /// Seeds that no earlier report had; of runs, their [`id`](crate::History::id).
    pub fresh: Vec<u64>,
    /// A row for each question on each arm except the baseline.
    pub rows: Vec<LookedAt>,
}

/// A question of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// The cost of an arm to the first target.
    Cost,
    /// The accuracy of an arm at the end.
    End,
}

/// The result of an arm after several looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LookedAt {
    /// Index of the arm.
    pub arm: usize,
    /// The question.
    pub asked: Asked,
    /// p-value of all seeds after Holm's correction, as for a single look.
    pub p: Option<f64>,
    /// That p-value times the number of looks, at most 1.
    pub corrected: Option<f64>,
    /// Ratio or difference over all seeds. The intervals of all looks together have the report's
    /// confidence.
    pub all: Option<Estimate>,
    /// Bounds on the ratio if there is none, with the same confidence.
    pub bound: Option<Bound>,
    /// Number of fresh seeds that the arm and the baseline both have.
    pub pairs: usize,
    /// Ratio or difference over the fresh seeds alone.
    pub fresh: Option<Estimate>,
    /// Bounds on the ratio over the fresh seeds, if there is none.
    pub fresh_bound: Option<Bound>,
    /// p-value of the fresh seeds alone, after Holm's correction.
    pub fresh_p: Option<f64>,
}

/// Uses of an arm's rollouts, over all of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Use {
    /// Index of the arm.
    pub arm: usize,
    /// Number of runs.
    pub runs: usize,
    /// Rollouts sampled.
    pub sampled: u64,
    /// Number of these for prompts from the pool.
    pub pilots: u64,
    /// Number of these for buffered prompts.
    pub commits: u64,
    /// Number of these that reached the length limit.
    pub truncated: u64,
    /// Their fates.
    pub fates: Fates,
    /// Number of rollouts trained on, by age in model updates.
    pub ages: Vec<u64>,
    /// Means per run: prompt tokens, generated tokens, trained tokens, optimizer steps, FLOPs, seconds.
    pub costs: Vec<(String, f64)>,
}

/// Statistic of a trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Share of the rollouts trained on that have an advantage.
    Effective,
    /// Share of the rollouts sampled that were trained on with an advantage.
    Useful,
    /// Mean reward of all rollouts sampled: unfiltered.
    Reward,
    /// Mean reward of the rollouts trained on: filtered.
    TrainedReward,
    /// Mean age of the rollouts trained on, in model updates.
    Age,
}

/// A step statistic over an arm's runs, by cost on the main axis: the mean of the steps between two costs.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// Index of the arm.
    pub arm: usize,
    /// The statistic.
    pub told: Told,
    /// Cost at the middle of each bin, and the mean over runs.
    pub points: Vec<(f64, Estimate)>,
}

/// Criterion that divides the data into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartBy {
    /// The source of a prompt.
    Source,
    /// The outcome of a prompt's first visit.
    FirstVisit,
}

/// Statistics of an arm on a part of the data: means over its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Taught {
    /// Index of the arm.
    pub arm: usize,
    /// Criterion of the part.
    pub by: PartBy,
    /// The part.
    pub part: String,
    /// Number of its prompts, if known.
    pub prompts: Option<u64>,
    /// Number of its prompts that were visited.
    pub seen: f64,
    /// Number of those of which a rollout was trained on with an advantage.
    pub taught: f64,
    /// Its share of the rollouts.
    pub sampled: f64,
    /// Its share of the rollouts that were trained on with an advantage.
    pub learned: f64,
    /// Accuracy at the start: held-out, or of its prompts' first visits.
    pub start: Option<Estimate>,
    /// Accuracy at the end: held-out, or of its prompts' last visits.
    pub end: Option<Estimate>,
}

/// A key in which arms differ.
#[derive(Clone, Debug, Serialize)]
pub struct Differing {
    /// The key in a config or record.
    pub key: String,
    /// The value of each arm, in their order.
    pub values: Vec<String>,
    /// Whether it belongs to the policy: its version, hash or settings. Other keys should be equal.
    pub own: bool,
}
