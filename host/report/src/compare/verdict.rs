//! Verdicts of a comparison, in words. The cost to a target and the final accuracy are two questions; each
//! has its own finding, whose word and sentence agree.

use super::costs::{Against, against};
use super::{CONFIDENCE, Runs};
use crate::axis::Axis;
use crate::number::{compared, compared_ends, percent_tick, times_at_least};
use crate::report::{Difference, Finding, Outcome, Reached, Target, Verdict};
use crate::statistics::{Bound, Needed, seeds_needed};

/// The basis of a verdict.
pub struct Seen<'s> {
    /// The arms.
    pub groups: &'s [Runs],
    /// Index of the baseline.
    pub baseline: usize,
    /// The main axis.
    pub axis: Axis,
    /// A difference in accuracy too small to matter.
    pub margin: f64,
    /// Number of looks for which intervals and p-values are corrected; 1 if they are plain.
    pub looks: usize,
    /// Costs to targets.
    pub targets: &'s [Target],
    /// Differences to the baseline.
    pub differences: &'s [Difference],
}

/// Returns a verdict on each arm except the baseline.
pub fn verdicts(seen: &Seen<'_>) -> Vec<Verdict> {
    let others = (0..seen.groups.len()).filter(|arm| *arm != seen.baseline);
    others.map(|arm| Verdict { arm, cost: cost(seen, arm), end: end(seen, arm) }).collect()
}

/// Returns the finding on an arm's cost to the first target.
fn cost(seen: &Seen<'_>, arm: usize) -> Option<Finding> {
    let target = seen.targets.iter().find(|t| t.axis == seen.axis)?;
    let (row, base) = (&target.rows[arm], &target.rows[seen.baseline]);
    let told = Told {
        name: &seen.groups[arm].name,
        against: &seen.groups[seen.baseline].name,
        axis: seen.axis.words(),
        goal: percent_tick(target.accuracy),
        row,
        base,
        looks: seen.looks,
    };
    let sure = row.holm.is_some_and(|p| p < 1.0 - CONFIDENCE);
    Some(match (row.ratio, row.bound) {
        (Some(ratio), _) => {
            let known = ratio.low.zip(ratio.high);
            told.ratio(ratio.value, known, sure, || cost_seeds(seen, arm, target))
        }
        (None, Some(bound)) if row.reached + base.reached > 0 => told.bound(bound, sure),
        _ => told.nothing(),
    })
}

/// The parts of a sentence on costs.
struct Told<'s> {
    name: &'s str,
    against: &'s str,
    axis: &'static str,
    goal: String,
    row: &'s Reached,
    base: &'s Reached,
    looks: usize,
}

impl Told<'_> {
    /// Returns the finding if all runs reached the target.
    fn ratio(
        &self,
        ratio: f64,
        interval: Option<(f64, f64)>,
        sure: bool,
        seeds: impl FnOnce() -> Option<u64>,
    ) -> Finding {
        let Self { name, against, axis, goal, row, .. } = self;
        let p = p_value(row.holm, self.looks);
        let Some((low, high)) = interval else {
            let seeds = few(row.pairs, row.unpaired);
            let words = format!("`{name}` took {} `{against}` to {goal}, {seeds}", size(ratio, axis));
            return Finding { kind: Outcome::Inconclusive, words };
        };
        let ends = compared_ends(low, high);
        if !sure {
            let words = format!(
                "`{name}` does not differ significantly from `{against}` in {axis} to {goal}: it took {} (95 %: {} \
                 to {}{p}); {}",
                compared(ratio),
                ends.0,
                ends.1,
                needed(seeds(), row.unpaired)
            );
            return Finding { kind: Outcome::Inconclusive, words };
        }
        let kind = if ratio > 1.0 { Outcome::Better } else { Outcome::Worse };
        let words = format!(
            "`{name}` needs {} `{against}` to {goal} (95 %: {} to {}{p})",
            size(ratio, axis),
            ends.0,
            ends.1
        );
        Finding { kind, words }
    }

    /// Returns the finding if some runs did not.
    fn bound(&self, bound: Bound, sure: bool) -> Finding {
        let Self { against, axis, row, .. } = self;
        let (counts, p) = (self.counts(), p_value(row.holm, self.looks));
        let low = bound.low.filter(|low| *low >= 1.01).map(times_at_least);
        let high = bound.high.filter(|high| *high <= 1.0 / 1.01).map(|high| times_at_least(1.0 / high));
        if sure {
            // The test rejects "no difference" only on the side of the bound.
            let better = bound.low.is_some_and(|low| low >= 1.0);
            let kind = if better { Outcome::Better } else { Outcome::Worse };
            let words = match (better, low, high) {
                (true, Some(low), _) => format!("it needs at least {low} fewer {axis} than `{against}`"),
                (false, _, Some(high)) => {
                    format!("it needs at least {high} more {axis} than `{against}`")
                }
                (true, ..) => format!("it needs fewer {axis} than `{against}`"),
                (false, ..) => format!("it needs more {axis} than `{against}`"),
            };
            return Finding { kind, words: format!("{counts}: {words} (95 %{p})") };
        }
        let each = if row.pairs == 1 { "with one seed" } else { "in each pair of runs" };
        let seen = match (bound.least, bound.most) {
            (Some(least), _) if least >= 1.01 => {
                format!("it took at least {} fewer {axis} {each}", times_at_least(least))
            }
            (_, Some(most)) if most <= 1.0 / 1.01 => {
                format!("it took at least {} more {axis} {each}", times_at_least(1.0 / most))
            }
            _ => "the difference in cost is not significant".to_owned(),
        };
        let few = if row.pairs > 1 && bound.known < 6 {
            format!(
                "; of {} pairs {} show which was cheaper, and a bound on the ratio needs at least six",
                row.pairs, bound.known
            )
        } else if row.pairs > 1 {
            format!(" (95 %{p})")
        } else {
            String::new()
        };
        Finding { kind: Outcome::Inconclusive, words: format!("{counts}: {seen}{few}") }
    }

    /// Returns the finding if there is nothing to compare.
    fn nothing(&self) -> Finding {
        let Self { name, against, goal, row, base, .. } = self;
        let words = if row.reached + base.reached == 0 {
            format!("{}: there is no cost to compare", self.counts())
        } else if row.mean.is_none() && base.mean.is_none() && row.median == Some(0.0) {
            format!("`{name}` is at {goal} before the first step, as `{against}` is")
        } else if row.unpaired && (row.reached < row.runs || base.reached < base.runs) {
            format!("{}: there is no ratio of costs of unpaired runs unless all got there", self.counts())
        } else {
            format!("{}; a run was there before its first step, so there is no ratio of costs", self.counts())
        };
        Finding { kind: Outcome::Inconclusive, words }
    }

    fn counts(&self) -> String {
        let Self { name, against, goal, row, base, .. } = self;
        let (ours, theirs) = (row.reached, base.reached);
        format!(
            "`{name}` reached {goal} in {ours} of {} runs, `{against}` in {theirs} of {}",
            row.runs, base.runs
        )
    }
}

/// Describes a cost relative to another one.
pub fn size(ratio: f64, axis: &str) -> String {
    format!("{} {axis} than", compared(ratio))
}

/// Formats a corrected p-value, to follow a number.
fn p_value(p: Option<f64>, looks: usize) -> String {
    let by = if looks > 1 { format!(" and for {looks} looks") } else { String::new() };
    match p {
        Some(p) if p < 0.005 => format!("; p < 0.005 by Holm's correction{by}"),
        Some(p) => format!("; p = {p:.2} by Holm's correction{by}"),
        None => String::new(),
    }
}

/// Returns the number of seeds that would distinguish the costs, from their paired logarithms.
fn cost_seeds(seen: &Seen<'_>, arm: usize, target: &Target) -> Option<u64> {
    let (arm, baseline) = (&seen.groups[arm], &seen.groups[seen.baseline]);
    let (Against::Ratio(ratio), _) = against(arm, baseline, target.accuracy, target.axis, CONFIDENCE) else {
        return None;
    };
    let alpha = (1.0 - CONFIDENCE) / (seen.groups.len().max(2) - 1) as f64;
    match seeds_needed(ratio.logs.mean, ratio.logs.deviation?, alpha).ok()? {
        Needed::Seeds(n) => Some(u64::from(n)),
        Needed::MoreThan(_) => None,
    }
}

/// Returns why a difference has no interval: there are too few runs, or none that differ.
fn few(pairs: usize, unpaired: bool) -> &'static str {
    match (pairs, unpaired) {
        (1, false) => "with one seed",
        (1, true) => "with one run",
        (_, false) => "the same with every seed",
        (_, true) => "the same in all runs",
    }
}

fn needed(seeds: Option<u64>, unpaired: bool) -> String {
    let what = if unpaired { "runs of each" } else { "seeds" };
    match seeds {
        Some(n) => format!("about {n} {what} would be needed to tell a difference of this size"),
        None => format!("more than 1000 {what} would be needed to tell a difference of this size"),
    }
}

/// Returns the finding on an arm's accuracy at the end of the budget.
fn end(seen: &Seen<'_>, arm: usize) -> Finding {
    let (name, against) = (&seen.groups[arm].name, &seen.groups[seen.baseline].name);
    let finding = |kind, words| Finding { kind, words };
    let Some(row) = seen.differences.iter().find(|d| d.arm == arm) else {
        let words = format!("`{name}` has no finished run that could be compared with one of `{against}`");
        return finding(Outcome::Inconclusive, words);
    };
    let size = format!("{:.1} points", 100.0 * row.mean.value.abs());
    let side = if row.mean.value >= 0.0 { "above" } else { "below" };
    let (Some(low), Some(high)) = (row.mean.low, row.mean.high) else {
        let seeds = few(row.seeds, row.unpaired);
        return finding(Outcome::Inconclusive, format!("`{name}` ended {size} {side} `{against}`, {seeds}"));
    };
    let told = format!("95 %: {} to {}{}", signed(low), signed(high), p_value(row.holm, seen.looks));
    if row.holm.is_some_and(|p| p < 1.0 - CONFIDENCE) {
        let kind = if row.mean.value > 0.0 { Outcome::Better } else { Outcome::Worse };
        finding(kind, format!("`{name}` ends {size} {side} `{against}` ({told})"))
    } else if low > -seen.margin && high < seen.margin {
        let margin = 100.0 * seen.margin;
        finding(Outcome::Same, format!("`{name}` ends within {margin:.1} points of `{against}` ({told})"))
    } else {
        let words = format!(
            "`{name}` does not differ significantly from `{against}` in accuracy at the end: {} points ({told}); {}",
            signed(row.mean.value),
            needed(row.needed, row.unpaired)
        );
        finding(Outcome::Inconclusive, words)
    }
}

/// Formats a difference in accuracy, in points.
fn signed(difference: f64) -> String {
    let text = format!("{:+.1}", 100.0 * difference);
    // Do not show the sign of zero.
    if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text }
}
