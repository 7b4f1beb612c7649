//! Looks: reports made before a comparison grew. Adding seeds until p is small finds a small p more often
//! than p says. Two things remain valid: p-values multiplied by the number of looks (Bonferroni), with
//! intervals at the corresponding level, and tests of the seeds that no look has seen.

use serde::{Deserialize, Serialize};

use super::verdict::size;
use super::{CONFIDENCE, Runs, costs, finals};
use crate::axis::Axis;
use crate::number;
use crate::report::{Asked, Difference, Estimate, LookedAt, Looks, Target, Verdict};

/// A report with p-values, as recorded in a comparison's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Seeds planned at that time, or runs.
    pub planned: Vec<u64>,
    /// Those of them that the report had.
    pub seen: Vec<u64>,
}

/// Returns the looks before growth, by their numbers of seeds: one per plan, with all seeds seen under it.
/// Looks under the current plan do not count.
pub fn before_growth(looks: &[Look], planned: &[u64]) -> Vec<Look> {
    let mut merged: Vec<Look> = Vec::new();
    for look in looks.iter().filter(|look| look.planned.len() < planned.len()) {
        match merged.iter_mut().find(|other| other.planned == look.planned) {
            Some(other) => other.seen.extend(&look.seen),
            None => merged.push(look.clone()),
        }
    }
    for look in &mut merged {
        look.seen.sort_unstable();
        look.seen.dedup();
    }
    merged.sort_by_key(|look| look.planned.len());
    merged
}

/// Costs and differences with intervals and p-values corrected for looks.
pub struct Corrected {
    /// Costs to the first target on the main axis, if there is a target.
    pub targets: Vec<Target>,
    /// Differences to the baseline.
    pub differences: Vec<Difference>,
}

/// The subject of a comparison.
#[derive(Clone, Copy)]
pub struct Compared<'g> {
    /// The arms.
    pub groups: &'g [Runs],
    /// Index of the baseline.
    pub baseline: usize,
    /// The first target, if there is one.
    pub target: Option<f64>,
    /// The main axis.
    pub axis: Axis,
    /// Whether looks count runs, and not seeds.
    pub of_runs: bool,
}

impl Compared<'_> {
    /// Returns intervals at a level, and p-values multiplied by a number.
    fn at(self, level: f64, times: usize) -> Corrected {
        let Self { groups, baseline, target, axis, .. } = self;
        let wanted: Vec<f64> = target.into_iter().collect();
        let mut targets = costs::targets(groups, baseline, &wanted, &[axis], level);
        let mut differences = finals::differences(groups, baseline, level);
        let rows = targets.iter_mut().flat_map(|target| &mut target.rows).map(|row| &mut row.holm);
        for p in rows.chain(differences.iter_mut().map(|row| &mut row.holm)) {
            *p = p.map(|p| (p * times as f64).min(1.0));
        }
        Corrected { targets, differences }
    }

    /// Returns intervals and p-values that are valid after `looks` looks, the last one included. The
    /// probability of an error in any look is at most the sum of their probabilities.
    pub fn corrected(self, looks: usize) -> Corrected {
        self.at(level(looks), looks)
    }

    /// Returns the results of arms that were looked at before.
    pub fn looks(self, before: &[Look], corrected: &Corrected) -> Looks {
        let seen = |seed: u64| before.iter().any(|look| look.seen.contains(&seed));
        let unseen = |runs: &Runs| Runs {
            runs: runs.runs.iter().filter(|run| !seen(run.id)).cloned().collect(),
            ..runs.clone()
        };
        let groups: Vec<Runs> = self.groups.iter().map(unseen).collect();
        let mut fresh: Vec<u64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.id)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        let alone = Compared { groups: &groups, ..self }.at(CONFIDENCE, 1);
        let plain = self.at(CONFIDENCE, 1);
        let others = (0..self.groups.len()).filter(|arm| *arm != self.baseline);
        let of = |arm: usize| {
            [cost(arm, &plain, corrected, &alone), end(arm, &plain, corrected, &alone)].into_iter().flatten()
        };
        Looks {
            of_runs: self.of_runs,
            seeds: before.iter().map(|look| look.seen.len()).collect(),
            count: before.len() + 1,
            fresh,
            rows: others.flat_map(of).collect(),
        }
    }
}

/// Returns the level of one look's interval at which all looks together have the intended confidence.
pub fn level(looks: usize) -> f64 {
    if looks == 1 { CONFIDENCE } else { 1.0 - (1.0 - CONFIDENCE) / looks as f64 }
}

fn cost(arm: usize, plain: &Corrected, corrected: &Corrected, alone: &Corrected) -> Option<LookedAt> {
    let row = |of: &Corrected| of.targets.first().map(|target| target.rows[arm].clone());
    let (plain, corrected, alone) = (row(plain)?, row(corrected)?, row(alone)?);
    Some(LookedAt {
        arm,
        asked: Asked::Cost,
        p: plain.holm,
        corrected: corrected.holm,
        all: corrected.ratio,
        bound: corrected.bound,
        pairs: alone.pairs,
        fresh: alone.ratio,
        fresh_bound: alone.bound,
        fresh_p: alone.holm,
    })
}

fn end(arm: usize, plain: &Corrected, corrected: &Corrected, alone: &Corrected) -> Option<LookedAt> {
    let row = |of: &Corrected| of.differences.iter().find(|row| row.arm == arm).cloned();
    let (plain, corrected, alone) = (row(plain)?, row(corrected)?, row(alone));
    Some(LookedAt {
        arm,
        asked: Asked::End,
        p: plain.holm,
        corrected: corrected.holm,
        all: Some(corrected.mean),
        bound: None,
        pairs: alone.as_ref().map_or(0, |row| row.seeds),
        fresh: alone.as_ref().map(|row| row.mean),
        fresh_bound: None,
        fresh_p: alone.and_then(|row| row.holm),
    })
}

impl Looks {
    /// Returns the warning that plain p-values are too small.
    pub fn warning(&self, seeds: usize) -> String {
        let level = number::percent_tick(level(self.count));
        format!(
            "looked at with {} before it grew to {seeds}: plain p-values and intervals are too good if that look decided \
             on the growth. Verdicts are by p × {}, for {} looks (Bonferroni), and by {level} intervals; they and the {} \
             alone are in the table “What holds after {} looks”",
            self.looked_with(),
            self.count,
            self.count,
            self.fresh_ones(),
            self.count,
        )
    }

    /// Returns the number of fresh seeds, or runs, in words.
    fn fresh_ones(&self) -> String {
        let n = self.fresh.len();
        format!("{n} fresh {}", counted(n, self.of_runs))
    }

    /// Formats the numbers of seeds of the looks: "4 seeds", "4 and 8 seeds".
    fn looked_with(&self) -> String {
        let numbers: Vec<String> = self.seeds.iter().map(usize::to_string).collect();
        let plural = counted(if self.seeds == [1] { 1 } else { 2 }, self.of_runs);
        match numbers.split_last() {
            Some((last, before)) if !before.is_empty() => {
                format!("{} and {last} {plural}", before.join(", "))
            }
            _ => format!("{} {plural}", numbers.concat()),
        }
    }

    /// Adds the result of the fresh seeds alone to each finding.
    pub fn tell(&self, verdicts: &mut [Verdict], axis: Axis, baseline: &str) {
        for row in &self.rows {
            let Some(verdict) = verdicts.iter_mut().find(|verdict| verdict.arm == row.arm) else { continue };
            let finding = match row.asked {
                Asked::Cost => verdict.cost.as_mut(),
                Asked::End => Some(&mut verdict.end),
            };
            if let Some(finding) = finding {
                finding.words += &self.alone(row, axis, baseline);
            }
        }
    }

    fn alone(&self, row: &LookedAt, axis: Axis, baseline: &str) -> String {
        let seeds = self.fresh_ones();
        let Some(p) = row.fresh_p else { return format!("; there is no p-value for the {seeds} alone") };
        let much = |value: &Estimate| match row.asked {
            Asked::Cost => format!(" {} `{baseline}`,", size(value.value, axis.words())),
            Asked::End => format!(" {} points,", number::points(value.value)),
        };
        let much = row.fresh.as_ref().map(much).unwrap_or_default();
        let p = if p < 0.005 { "p < 0.005".to_owned() } else { format!("p = {p:.2}") };
        format!("; on the {seeds} alone:{much} {p} by Holm's correction")
    }
}

/// What looks count, by their number.
fn counted(n: usize, of_runs: bool) -> &'static str {
    match (n, of_runs) {
        (1, false) => "seed",
        (_, false) => "seeds",
        (1, true) => "run",
        (_, true) => "runs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(planned: u64, seen: &[u64]) -> Look {
        Look { planned: (1..=planned).collect(), seen: seen.to_vec() }
    }

    #[test]
    fn a_look_counts_once_the_plan_has_grown_and_once_for_each_plan() {
        let plan: Vec<u64> = (1..=8).collect();
        let all = [look(4, &[1, 2]), look(4, &[1, 2, 3, 4]), look(2, &[1, 2]), look(8, &plan)];
        assert_eq!(before_growth(&all, &plan), [look(2, &[1, 2]), look(4, &[1, 2, 3, 4])]);
        assert_eq!(before_growth(&all[..2], &plan[..4]), []);
        assert_eq!(before_growth(&all[..1], &plan), [look(4, &[1, 2])]);
    }

    #[test]
    fn looks_are_told_by_their_seeds() {
        let of = |seeds: &[usize]| {
            let looks = Looks {
                of_runs: false,
                seeds: seeds.to_vec(),
                count: 1 + seeds.len(),
                fresh: vec![9],
                rows: Vec::new(),
            };
            looks.looked_with()
        };
        assert_eq!([of(&[4]), of(&[2, 4]), of(&[2, 4, 8])], ["4 seeds", "2 and 4 seeds", "2, 4 and 8 seeds"]);
    }
}
