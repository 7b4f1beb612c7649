//! Costs of each arm to reach the target on three axes (rollouts, tokens and FLOPs), and the arms on the
//! Pareto front.

use crate::axis::Axis;
use crate::number::{self, percent_tick};
use crate::report::{Estimate, Report};

/// The axes that do not depend on the trainer.
const AXES: [Axis; 3] = [Axis::Rollouts, Axis::Tokens, Axis::Flops];

/// Costs of the arms and their Pareto front.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    /// The target accuracy.
    pub accuracy: f64,
    /// The axes that are known.
    pub axes: Vec<Axis>,
    /// A row for every arm, even if not all of its runs reached the target.
    pub rows: Vec<Row>,
}

/// Costs of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Index of the arm.
    pub arm: usize,
    /// Number of runs that reached the target, and of all runs.
    pub reached: (usize, usize),
    /// Cost on each axis: the geometric mean over runs, if all of them reached the target.
    pub paid: Vec<Option<Estimate>>,
    /// The baseline's cost divided by this one, on each axis.
    pub ratios: Vec<Option<Estimate>>,
    /// Whether no other arm costs at most as much on every axis and less on one.
    pub on_front: bool,
}

impl Frontier {
    /// Returns the front of the first target; `None` without one, or with fewer than two axes or arms.
    pub fn of(report: &Report) -> Option<Self> {
        let accuracy = report.targets.first()?.accuracy;
        let of = |axis: Axis| report.targets.iter().find(|t| t.axis == axis && t.accuracy == accuracy);
        let targets: Vec<_> = AXES.into_iter().filter_map(of).collect();
        if targets.len() < 2 || report.arms.len() < 2 {
            return None;
        }
        let row = |arm: usize| {
            let on = |axis: usize| targets[axis].rows.iter().find(|row| row.arm == arm);
            let all = || (0..targets.len()).map(on);
            let finite = |e: Option<Estimate>| e.filter(|e| e.value.is_finite() && e.value > 0.0);
            Row {
                arm,
                reached: on(0).map_or((0, 0), |row| (row.reached, row.runs)),
                paid: all().map(|row| finite(row?.mean)).collect(),
                ratios: all().map(|row| finite(row?.ratio)).collect(),
                on_front: false,
            }
        };
        let mut rows: Vec<Row> = (0..report.arms.len()).map(row).collect();
        let paid: Vec<Option<Vec<f64>>> =
            rows.iter().map(|row| row.paid.iter().map(|paid| paid.map(|e| e.value)).collect()).collect();
        for (row, own) in rows.iter_mut().zip(&paid) {
            row.on_front =
                own.as_ref().is_some_and(|own| !paid.iter().flatten().any(|other| beats(other, own)));
        }
        Some(Self { accuracy, axes: targets.iter().map(|t| t.axis).collect(), rows })
    }

    /// Returns the cheapest arm on an axis.
    pub fn cheapest(&self, axis: usize) -> Option<usize> {
        let paid = self.rows.iter().filter_map(|row| Some((row.arm, row.paid[axis]?.value)));
        paid.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(arm, _)| arm)
    }

    /// Returns a sentence on each arm that is the cheapest on some axes but not on others.
    pub fn words(&self, report: &Report) -> Vec<String> {
        let name = |arm: usize| report.arms.get(arm).map_or("?", |a| a.name.as_str());
        let cheapest: Vec<Option<usize>> = (0..self.axes.len()).map(|axis| self.cheapest(axis)).collect();
        let words = |row: &Row| {
            let (won, lost): (Vec<usize>, Vec<usize>) =
                (0..self.axes.len()).partition(|axis| cheapest[*axis] == Some(row.arm));
            if won.is_empty() || lost.is_empty() {
                return None;
            }
            let listed = |axes: &[usize]| {
                axes.iter().map(|axis| self.axes[*axis].words()).collect::<Vec<_>>().join(" and ")
            };
            let dearer = lost.iter().filter_map(|axis| {
                let best = cheapest[*axis]?;
                let other = self.rows.iter().find(|row| row.arm == best)?.paid[*axis]?;
                let times = number::times(row.paid[*axis]?.value / other.value);
                Some(format!("{times} more {} than `{}`", self.axes[*axis].words(), name(best)))
            });
            Some(format!(
                "`{}` is the cheapest to {} in {} alone: it takes {}",
                name(row.arm),
                percent_tick(self.accuracy),
                listed(&won),
                dearer.collect::<Vec<_>>().join(", and ")
            ))
        };
        self.rows.iter().filter_map(words).collect()
    }
}

/// Whether `one` is at most as large on every axis, and smaller on one.
fn beats(one: &[f64], other: &[f64]) -> bool {
    let mut pairs = one.iter().zip(other);
    pairs.clone().all(|(a, b)| a <= b) && pairs.any(|(a, b)| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_beats_another_if_it_is_nowhere_dearer_and_somewhere_cheaper() {
        assert!(beats(&[1.0, 2.0], &[1.0, 3.0]));
        assert!(!beats(&[1.0, 2.0], &[1.0, 2.0]));
        assert!(!beats(&[1.0, 4.0], &[2.0, 3.0]));
    }
}
