//! A report as plain data: every number that a page, a figure or a table shows, and every sentence.
//!
//! It is made by `compare` and drawn by `page`, `figure` and
//! `tables`, which compute nothing. Written out as JSON it is `report.json`.

use serde::Serialize;

use crate::axis::{Axis, Costs};
pub use crate::estimate::Estimate;
use crate::history::Fates;
use crate::number::percent_tick;
use crate::statistics::Bound;
use crate::tuning::Tuning;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was compared, in a few words.
    pub title: String,
    /// What all runs share, as pairs of name and value.
    pub shared: Vec<(String, String)>,
    /// The axis that costs are told in.
    pub axis: Axis,
    /// The axes that every run knows, the main one first.
    pub axes: Vec<Axis>,
    /// Whether targets were set beforehand: then verdicts on costs go first.
    pub asked: bool,
    /// How sure the intervals are: 0.95.
    pub confidence: f64,
    /// The arm that the others are measured against, by its place in `arms`.
    pub baseline: usize,
    /// What was compared: a policy with its settings each.
    pub arms: Vec<Arm>,
    /// What does not make a fair comparison.
    pub warnings: Vec<String>,
    /// Runs that were left out or cut short, and other things that a reader should know.
    pub notes: Vec<String>,
    /// What it comes to, in words: one for each arm but the baseline.
    pub verdicts: Vec<Verdict>,
    /// Accuracy against each axis, for each arm.
    pub curves: Vec<Curve>,
    /// Cost to each target, on each axis.
    pub targets: Vec<Target>,
    /// Accuracy at the end and at its best, for each arm.
    pub finals: Vec<Final>,
    /// Accuracy at the end by part of the held-out problems, for each arm.
    pub parts: Vec<Part>,
    /// Differences to the baseline, seed by seed.
    pub differences: Vec<Difference>,
    /// Where the rollouts went, for each arm.
    pub uses: Vec<Use>,
    /// How numbers of a step went over the run, against the main axis.
    pub trends: Vec<Trend>,
    /// In what the arms' configs differ.
    pub differing: Vec<Differing>,
    /// Which parts of the data each arm taught.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taught: Vec<Taught>,
    /// How far scores are apart where runs reach the first target: the share of the cost to it that a run had spent
    /// since the score before, on the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
    /// How the arms were tuned, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// What holds of a comparison that grew after reports on it were made; none if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
}

/// A question that a comparison asks, and what was found for each arm but the baseline.
pub struct Answers<'r> {
    /// The question.
    pub question: String,
    /// Arms, by their places, and what was found.
    pub findings: Vec<(usize, &'r Finding)>,
}

impl Report {
    /// What it comes to, question by question: the one that was asked beforehand goes first.
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
    /// What it is called.
    pub name: String,
    /// The policy's own name, version and hash.
    pub policy: String,
    /// Its version.
    pub version: String,
    /// Its component's sha256.
    pub sha256: String,
    /// Its settings in force.
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
    /// How it ended.
    pub state: State,
    /// Why it ended, in words.
    pub reason: String,
    /// Steps finished.
    pub steps: u32,
    /// Those that updated the model.
    pub updates: u64,
    /// What it cost.
    pub costs: Costs,
    /// Accuracy before the first step.
    pub start: f64,
    /// The last accuracy.
    pub last: f64,
    /// The best accuracy.
    pub best: f64,
    /// What its policy measured, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
}

/// A metric of a policy in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Calls that gave it.
    pub calls: u64,
    /// Its mean over them.
    pub mean: f64,
    /// What the last one gave.
    pub last: f64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// By a normal end: it counts in every table.
    Finished,
    /// Not yet, or it was cut off: it counts in curves and in costs to target, as far as it goes.
    Unfinished,
    /// By a failure: likewise.
    Failed,
}

/// Accuracy of an arm against an axis: the mean over its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The axis.
    pub axis: Axis,
    /// The arm, by its place.
    pub arm: usize,
    /// Cost, and accuracy. As far as all runs of the arm go.
    pub points: Vec<(f64, Estimate)>,
}

/// What it costs to reach an accuracy, on an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The accuracy.
    pub accuracy: f64,
    /// The axis.
    pub axis: Axis,
    /// The budget's end: the largest cost that every finished run was looked at for.
    pub horizon: f64,
    /// A row for each arm.
    pub rows: Vec<Reached>,
}

/// How an arm reached a target.
#[derive(Clone, Debug, Serialize)]
pub struct Reached {
    /// The arm, by its place.
    pub arm: usize,
    /// Runs that reached it.
    pub reached: usize,
    /// Runs in all. Those that did not are censored: they count as "more than what they spent".
    pub runs: usize,
    /// Share of runs that have reached it by the horizon, one minus the Kaplan-Meier estimate there.
    pub share: Estimate,
    /// The Kaplan-Meier median: none where fewer than half of the runs reached it.
    pub median: Option<f64>,
    /// The median's interval, each end of which may lie beyond what was looked at.
    pub median_low: Option<f64>,
    /// Its upper end.
    pub median_high: Option<f64>,
    /// The geometric mean of the cost; none where a run did not reach it, or was there from the start.
    pub mean: Option<Estimate>,
    /// How many times the baseline's cost is this arm's, by paired seeds: above 1 the arm is cheaper. None for
    /// the baseline, and where a run of either arm did not reach it, or was there from the start.
    pub ratio: Option<Estimate>,
    /// What bounds that ratio where there is none because some runs did not reach the target.
    pub bound: Option<Bound>,
    /// Seeds that ratio or bound is of.
    pub pairs: usize,
    /// Whether costs differ, two-sided: Student's t on the logarithms of the pairs, or the sign test on those
    /// whose order is known.
    pub p: Option<f64>,
    /// The same after Holm's correction over all arms.
    pub holm: Option<f64>,
    /// Share of runs that have reached the target by a cost: where it steps up, with its interval.
    pub curve: Vec<(f64, Estimate)>,
}

/// An arm's accuracy at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Final {
    /// The arm, by its place.
    pub arm: usize,
    /// Finished runs.
    pub runs: usize,
    /// Mean accuracy before the first step.
    pub start: f64,
    /// Mean of the last accuracies.
    pub last: Estimate,
    /// Mean of each run's best accuracy, which is chosen by what it is measured on: too good.
    pub best: Estimate,
    /// Interquartile mean of the last accuracies over runs and parts.
    pub iqm: Estimate,
    /// Probability that a run of this arm is better than one of the baseline, over parts. None for the
    /// baseline.
    pub improvement: Option<Estimate>,
    /// What else was measured at the end, by name: pass@k.
    pub more: Vec<(String, Estimate)>,
}

/// An arm's accuracy on one part of the held-out problems.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The arm, by its place.
    pub arm: usize,
    /// The part.
    pub part: String,
    /// Mean of the last accuracies.
    pub last: Estimate,
}

/// The difference of an arm's last accuracy to the baseline's, seed by seed.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The arm, by its place.
    pub arm: usize,
    /// Seeds that both have finished.
    pub seeds: usize,
    /// Mean difference, with Student's interval.
    pub mean: Estimate,
    /// Student's t, paired, two-sided. None with one seed.
    pub p: Option<f64>,
    /// The same after Holm's correction over all arms.
    pub holm: Option<f64>,
    /// By flipping signs, exact up to 16 seeds.
    pub flip: Option<f64>,
    /// Seeds that would tell a difference of this size four times out of five. None where more than 1000.
    pub needed: Option<u64>,
}

/// What a comparison of an arm with the baseline comes to: two questions, and an answer to each.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The arm, by its place.
    pub arm: usize,
    /// What it costs to the first target; none where there is no target.
    pub cost: Option<Finding>,
    /// How accurate it is when the budget ends.
    pub end: Finding,
}

/// An answer to one question, in a word and in a sentence that say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// In a word.
    pub kind: Outcome,
    /// In a sentence, which names the arm.
    pub words: String,
}

/// A verdict in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Better than the baseline: cheaper, or more accurate.
    Better,
    /// Worse.
    Worse,
    /// Too close for a difference that matters.
    Same,
    /// The seeds do not tell.
    Inconclusive,
}

/// What holds of a comparison that grew after reports on it were made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Looks {
    /// With how many seeds each of these reports was made.
    pub seeds: Vec<usize>,
    /// Looks in all, this report among them: the number that p-values are multiplied by.
    pub count: usize,
    /// Seeds that none of these reports had.
    pub fresh: Vec<u64>,
    /// A row for each arm but the baseline, and for each question.
    pub rows: Vec<LookedAt>,
}

/// A question that a comparison asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// What an arm costs to the first target.
    Cost,
    /// How accurate it is at the end.
    End,
}

/// What holds of an arm after several looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LookedAt {
    /// The arm, by its place.
    pub arm: usize,
    /// The question.
    pub asked: Asked,
    /// p of all seeds after Holm's correction, as if there had been one look.
    pub p: Option<f64>,
    /// The same times the number of looks, at most 1.
    pub corrected: Option<f64>,
    /// Ratio or difference over all seeds. The intervals of all looks together hold what the report's confidence says.
    pub all: Option<Estimate>,
    /// What bounds the ratio where there is none, as surely.
    pub bound: Option<Bound>,
    /// Fresh seeds that the arm and the baseline both have.
    pub pairs: usize,
    /// Ratio or difference over the fresh seeds alone.
    pub fresh: Option<Estimate>,
    /// What bounds the ratio over the fresh seeds where there is none.
    pub fresh_bound: Option<Bound>,
    /// p of the fresh seeds alone, after Holm's correction.
    pub fresh_p: Option<f64>,
}

/// Where an arm's rollouts went, over all of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Use {
    /// The arm, by its place.
    pub arm: usize,
    /// Runs counted.
    pub runs: usize,
    /// Rollouts sampled.
    pub sampled: u64,
    /// Of them, for prompts from the pool.
    pub pilots: u64,
    /// Of them, for buffered prompts.
    pub commits: u64,
    /// Of them, those that met the length limit.
    pub truncated: u64,
    /// What became of them.
    pub fates: Fates,
    /// Those trained on, by age in model updates.
    pub ages: Vec<u64>,
    /// Means by run: prompt tokens, generated tokens, trained tokens, optimizer steps, operations, seconds.
    pub costs: Vec<(String, f64)>,
}

/// What a trend tells of.
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

/// A number of each step over an arm's runs, by cost on the main axis: the mean of the steps that fall
/// between two costs.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// The arm, by its place.
    pub arm: usize,
    /// What is told.
    pub told: Told,
    /// Cost at the middle, and the mean over runs.
    pub points: Vec<(f64, Estimate)>,
}

/// What parts are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartBy {
    /// Where the prompts come from.
    Source,
    /// How their first visit came out.
    FirstVisit,
}

/// What an arm made of a part of the data: means over its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Taught {
    /// The arm, by its place.
    pub arm: usize,
    /// What the part is made by.
    pub by: PartBy,
    /// The part.
    pub part: String,
    /// Its prompts, where they are known.
    pub prompts: Option<u64>,
    /// Prompts of it that were visited.
    pub seen: f64,
    /// Of them, those of which a rollout was trained on with an advantage.
    pub taught: f64,
    /// Its share of the rollouts.
    pub sampled: f64,
    /// Its share of those that were trained on with an advantage.
    pub learned: f64,
    /// Accuracy at the start: held-out, or of its prompts' first visits.
    pub start: Option<Estimate>,
    /// At the end: held-out, or of their last visits.
    pub end: Option<Estimate>,
}

/// Something in which arms differ.
#[derive(Clone, Debug, Serialize)]
pub struct Differing {
    /// What, as a config or a record calls it.
    pub key: String,
    /// The value of each arm, in their order; of several values all of them.
    pub values: Vec<String>,
    /// Whether it belongs to the policy: its version, hash or settings. All else should be the same.
    pub own: bool,
}
