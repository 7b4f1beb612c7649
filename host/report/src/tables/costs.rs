//! Tables of costs: to each target on every axis, and the uses of rollouts.

use super::outcome::{median, ratio, tested};
use super::{Cell, Column, Shape, Table, arm};
use crate::number;
use crate::report::{Report, Target};

/// Reason why there is no mean cost.
const PARTLY: &str = "Not all of its runs reached the target after their first step";

/// Returns the costs to each target on the main axis.
pub(super) fn targets(report: &Report) -> Table {
    on(report, "targets", format!("Cost to each target, in {}", report.axis.words()), |t| {
        t.axis == report.axis
    })
}

/// Returns the costs to each target on all other axes.
pub(super) fn other_targets(report: &Report) -> Table {
    on(report, "targets-on-other-axes", "Cost to each target, on the other axes".to_owned(), |t| {
        t.axis != report.axis
    })
}

fn on(report: &Report, name: &'static str, title: String, wanted: impl Fn(&Target) -> bool) -> Table {
    let apart = report.has_unpaired();
    let columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("target", "target", Shape::Number),
        Column::new("axis", "cost in", Shape::Words),
        Column::new("reached", "reached", Shape::Of),
        Column::new("share", "share of runs by the budget's end", Shape::Estimate),
        Column::new("horizon", "budget's end", Shape::Number),
        Column::new("median", "median", Shape::Estimate),
        Column::new("mean", "geometric mean", Shape::Estimate),
        Column::new("ratio", "than the baseline", Shape::Estimate),
        Column::new(
            "pairs",
            if apart { "seeds in common, or runs" } else { "seeds in common" },
            Shape::Number,
        ),
        Column::new("holm", "p (Holm)", Shape::Number),
    ];
    let mut targets: Vec<_> = report.targets.iter().filter(|t| wanted(t)).collect();
    let place = |axis| report.axes.iter().position(|a| *a == axis);
    targets.sort_by(|a, b| place(a.axis).cmp(&place(b.axis)).then(a.accuracy.total_cmp(&b.accuracy)));
    let rows = targets.into_iter().flat_map(|target| {
        target.rows.iter().map(|reached| {
            vec![
                arm(report, reached.arm),
                Cell::Number(target.accuracy, number::percent_tick(target.accuracy)),
                Cell::Words(target.axis.words().to_owned()),
                Cell::Of(reached.reached as u64, reached.runs as u64),
                Cell::Estimate(reached.share, number::percent),
                Cell::Number(target.horizon, number::cost(target.horizon)),
                median(reached),
                reached.mean.map_or(Cell::None(number::NONE, PARTLY), |m| Cell::Estimate(m, number::cost)),
                ratio(report, reached),
                if reached.arm == report.baseline {
                    Cell::None(number::NONE, "The baseline is not compared with itself")
                } else {
                    Cell::count(reached.pairs as u64)
                },
                tested(report, reached),
            ]
        })
    });
    Table {
        name,
        title,
        note: "Where all runs of an arm and of the baseline reached it, there is a ratio: “1.50× fewer” \
               is a cost of two thirds of the baseline's, “1.50× more” one of one and a half of it. Where some did not, there \
               are bounds on it, as far as the pairs tell."
            .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the uses of rollouts, in counts and shares of those sampled.
pub(super) fn uses(report: &Report) -> Table {
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("runs", "runs", Shape::Number),
        Column::new("sampled", "sampled", Shape::Number),
    ];
    columns.extend(
        [
            ("pilot", "pilot"),
            ("commit", "commit"),
            ("trained", "trained on"),
            ("learned", "with an advantage"),
            ("discarded", "discarded"),
            ("stale", "stale"),
            ("all_right", "all right"),
            ("all_wrong", "all wrong"),
            ("mixed", "mixed, discarded or equal"),
            ("unscorable", "no verdict"),
            ("held", "held at the end"),
            ("truncated", "truncated"),
        ]
        .map(|(key, head)| Column::new(key, head, Shape::Share)),
    );
    let rows = report.uses.iter().map(|u| {
        let fates = &u.fates;
        let shares = [
            u.pilots,
            u.commits,
            fates.trained(),
            fates.learned,
            fates.released(),
            fates.stale,
            fates.all_right(),
            fates.all_wrong(),
            fates.released_mixed + fates.trained_equal,
            fates.unscorable,
            fates.held,
            u.truncated,
        ];
        let mut row = vec![arm(report, u.arm), Cell::count(u.runs as u64), Cell::count(u.sampled)];
        row.extend(shares.map(|n| Cell::Share(n, u.sampled)));
        row
    });
    Table {
        name: "uses",
        title: "Where the rollouts went, in counts".to_owned(),
        note: "Over all runs of an arm, in shares of what was sampled. Pilot and commit: for prompts from the \
               pool and for buffered prompts. Trained on, discarded, stale, no verdict and held at the end add up \
               to all; all right, all wrong and mixed tell of what was trained on or discarded."
            .to_owned(),
        rows: rows.collect(),
        columns,
    }
}

/// Returns the mean compute of a run.
pub(super) fn spending(report: &Report) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in report.uses.iter().flat_map(|u| &u.costs) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut columns = vec![Column::new("arm", "arm", Shape::Words)];
    columns.extend(names.iter().map(|name| Column::new(&name.replace(' ', "_"), name, Shape::Number)));
    let rows = report.uses.iter().map(|u| {
        let mut row = vec![arm(report, u.arm)];
        row.extend(
            names.iter().map(|name| Cell::cost(u.costs.iter().find(|(n, _)| n == name).map(|(_, v)| *v))),
        );
        row
    });
    Table {
        name: "spending",
        title: "What a run computed".to_owned(),
        note: "Means over an arm's runs, evaluation left out.".to_owned(),
        rows: if names.is_empty() { Vec::new() } else { rows.collect() },
        columns,
    }
}
