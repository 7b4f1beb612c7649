//! What a comparison comes to, in words.

use super::costs::paired;
use super::{CONFIDENCE, Runs};
use crate::axis::Axis;
use crate::number::percent_tick;
use crate::report::{Difference, Final, Kind, Target, Verdict};
use crate::statistics::{Needed, difference, seeds_needed};

/// What a verdict is found from.
pub struct Seen<'s> {
    /// The arms.
    pub groups: &'s [Runs],
    /// The one that others are measured against.
    pub baseline: usize,
    /// The main axis.
    pub axis: Axis,
    /// A difference in accuracy that does not matter.
    pub margin: f64,
    /// Whether targets were set beforehand.
    pub asked: bool,
    /// Costs to targets.
    pub targets: &'s [Target],
    /// Accuracies at the end.
    pub finals: &'s [Final],
    /// Differences to the baseline.
    pub differences: &'s [Difference],
}

/// A verdict on each arm but the baseline. Where a target was set beforehand it is about the cost to the
/// first of them, else about accuracy when the budget ends; the other is told beside it.
pub fn verdicts(seen: &Seen<'_>) -> Vec<Verdict> {
    let others = (0..seen.groups.len()).filter(|arm| *arm != seen.baseline);
    others.map(|arm| verdict(seen, arm)).collect()
}

fn verdict(seen: &Seen<'_>, arm: usize) -> Verdict {
    let (cost_kind, cost_words) = cost(seen, arm);
    let (end_kind, end_words) = end(seen, arm);
    let name = &seen.groups[arm].name;
    let (kind, first, second) =
        if seen.asked { (cost_kind, cost_words, end_words) } else { (end_kind, end_words, cost_words) };
    Verdict { arm, kind, words: format!("`{name}` {first}; it {second}.") }
}

/// What an arm costs to the first target.
fn cost(seen: &Seen<'_>, arm: usize) -> (Kind, String) {
    let Some(target) = seen.targets.iter().find(|t| t.axis == seen.axis) else {
        return (Kind::Inconclusive, "was set no target".to_owned());
    };
    let (row, base) = (&target.rows[arm], &target.rows[seen.baseline]);
    let goal = percent_tick(target.accuracy);
    let axis = seen.axis.words();
    let against = &seen.groups[seen.baseline].name;
    let counts = format!("{} of {} runs, against {} of {}", row.reached, row.runs, base.reached, base.runs);
    let Some(ratio) = row.ratio else {
        let words = if row.pairs == 0 {
            format!("reaches {goal} in {counts}, with no seed that both came far enough with")
        } else if row.reached + base.reached == 0 {
            format!("never reaches {goal}, and neither does `{against}`")
        } else if row.restricted.value == 0.0 && base.restricted.value == 0.0 {
            format!("is at {goal} before the first step, as `{against}` is")
        } else {
            format!("reaches {goal} in {counts}, by no cost that could be compared")
        };
        return (Kind::Inconclusive, words);
    };
    let value = ratio.value;
    let size = if value >= 1.0 {
        format!("{value:.2} times fewer {axis} than")
    } else {
        format!("{:.2} times as many {axis} as", 1.0 / value)
    };
    let Some(low) = ratio.low else {
        return (Kind::Inconclusive, format!("takes {size} `{against}` to {goal}, with one seed"));
    };
    let far = ratio.high.map_or("more".to_owned(), |high| format!("{high:.2}"));
    let told = format!("times fewer, 95 %: {low:.2} to {far}; {}{counts}", corrected(row.holm));
    let sure = row.holm.is_some_and(|p| p < 1.0 - CONFIDENCE);
    if sure && value > 1.0 {
        (Kind::Better, format!("reaches {goal} with {size} `{against}` ({told})"))
    } else if sure {
        (Kind::Worse, format!("needs {size} `{against}` to {goal} ({told})"))
    } else {
        let words = format!(
            "takes {size} `{against}` to {goal}, inconclusive at this power ({told}); {}",
            needed(cost_seeds(seen, arm, target))
        );
        (Kind::Inconclusive, words)
    }
}

/// A p-value after its correction, with what follows it.
fn corrected(p: Option<f64>) -> String {
    match p {
        Some(p) if p < 0.005 => "p < 0.005 by Holm's correction; ".to_owned(),
        Some(p) => format!("p = {p:.2} by Holm's correction; "),
        None => String::new(),
    }
}

/// Seeds that would tell the costs apart, by their paired differences.
fn cost_seeds(seen: &Seen<'_>, arm: usize, target: &Target) -> Option<u64> {
    let (ours, theirs) = paired(&seen.groups[arm], &seen.groups[seen.baseline], target);
    let found = difference(CONFIDENCE, &ours, &theirs).ok()?;
    let alpha = (1.0 - CONFIDENCE) / (seen.groups.len().max(2) - 1) as f64;
    match seeds_needed(found.mean, found.deviation?, alpha).ok()? {
        Needed::Seeds(n) => Some(u64::from(n)),
        Needed::MoreThan(_) => None,
    }
}

fn needed(seeds: Option<u64>) -> String {
    match seeds {
        Some(n) => format!("about {n} seeds would be needed to tell a difference of this size"),
        None => "more than 1000 seeds would be needed to tell a difference of this size".to_owned(),
    }
}

/// How an arm stands when the budget ends.
fn end(seen: &Seen<'_>, arm: usize) -> (Kind, String) {
    let against = &seen.groups[seen.baseline].name;
    let Some(row) = seen.differences.iter().find(|d| d.arm == arm) else {
        return (Kind::Inconclusive, "has no finished run to compare by".to_owned());
    };
    let points = 100.0 * row.mean.value;
    let ours = 100.0 * seen.finals[arm].last.value;
    let (Some(low), Some(high)) = (row.mean.low, row.mean.high) else {
        let seeds = if row.seeds == 1 { "one seed" } else { "seeds that all differ by the same" };
        let words = format!(
            "ends at {ours:.1} %, {} points against `{against}`, with {seeds}",
            signed(row.mean.value)
        );
        return (Kind::Inconclusive, words);
    };
    let p = corrected(row.holm);
    let told = format!("{} to {}; {}", signed(low), signed(high), p.trim_end_matches("; "));
    let sure = row.holm.is_some_and(|p| p < 1.0 - CONFIDENCE);
    let size = points.abs();
    if sure && points > 0.0 {
        (Kind::Better, format!("ends {size:.1} points above `{against}` ({told})"))
    } else if sure {
        (Kind::Worse, format!("ends {size:.1} points below `{against}` ({told})"))
    } else if low > -seen.margin && high < seen.margin {
        let margin = 100.0 * seen.margin;
        (Kind::Same, format!("ends within {margin:.1} points of `{against}` ({told})"))
    } else {
        let words = format!(
            "ends {} points from `{against}`, inconclusive at this power ({told}); {}",
            signed(row.mean.value),
            needed(row.needed)
        );
        (Kind::Inconclusive, words)
    }
}

/// A difference in accuracy, in points.
fn signed(difference: f64) -> String {
    let text = format!("{:+.1}", 100.0 * difference);
    // Nobody knows what less than nothing is.
    if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text }
}
