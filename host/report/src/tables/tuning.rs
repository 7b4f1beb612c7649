//! Tables of tuning: for each arm the winning setting, its cost and that of the declared setting; and all
//! trials. All of it is from tuning seeds, and none from the comparison's own seeds.

use serde_json::Value;

use super::{Cell, Column, Shape, Table};
use crate::number::{self, shown};
use crate::tuning::{Measure, Trial, Tuned, TunedArm, Tuning};

/// Returns a row for each arm.
pub fn winners(tuning: &Tuning) -> Table {
    let goal = goal(tuning);
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("trials", "trials", Shape::Number),
        Column::new("best", if tuning.grid { "best of all" } else { "winner" }, Shape::Words),
        Column::new("best_measure", &goal, Shape::Number),
        Column::new("declared_measure", "as declared", Shape::Number),
    ];
    columns.extend(
        [("rollouts", "rollouts to tune"), ("tokens", "tokens to tune"), ("flops", "FLOPs to tune")]
            .map(|(key, head)| Column::new(key, head, Shape::Number)),
    );
    let row = |arm: &TunedArm| {
        let costs = arm.costs();
        let flops = Some(costs.compute.flops.total()).filter(|flops| *flops > 0.0);
        vec![
            Cell::Words(arm.name.clone()),
            Cell::count(arm.trials.len() as u64),
            Cell::Words(settings(arm, arm.winner())),
            measure(tuning, arm.winner().last()),
            measure(tuning, arm.declared().last()),
            Cell::cost(Some(costs.spent.run_rollouts as f64)),
            Cell::cost(Some(costs.spent.run_tokens as f64)),
            Cell::cost(flops),
        ]
    };
    let seeds: Vec<String> = tuning.seeds.iter().map(u64::to_string).collect();
    let note = format!(
        "On tuning seeds ({}), which no other table has. A trial ends when it has reached the target. The winner was \
         chosen by these numbers, which flatters it: its cost on fresh seeds is in the other tables.",
        seeds.join(", ")
    );
    Table {
        name: "tuning",
        title: "How each arm was tuned".to_owned(),
        note,
        rows: tuning.arms.iter().map(row).collect(),
        columns,
    }
}

/// Returns a row for each trial.
pub fn trials(tuning: &Tuning) -> Table {
    let mut columns = vec![
        Column::new("arm", "arm", Shape::Words),
        Column::new("trial", "trial", Shape::Number),
        Column::new("settings", "settings", Shape::Words),
        Column::new("rungs", "rungs", Shape::Number),
        Column::new("reached", "reached", Shape::Of),
        Column::new("cost", "cost to the target", Shape::Number),
        Column::new("accuracy", "last accuracy", Shape::Number),
        Column::new("rollouts", "rollouts", Shape::Number),
        Column::new("became", "what became of it", Shape::Words),
    ];
    if tuning.goal.target.is_none() {
        columns.retain(|column| !["reached", "cost"].contains(&column.key.as_str()));
    }
    let row = |arm: &TunedArm, trial: &Trial| {
        let last = trial.last();
        let mut row = vec![
            Cell::Words(arm.name.clone()),
            Cell::count(u64::from(trial.number)),
            Cell::Words(settings(arm, trial)),
            Cell::count(trial.rungs.len() as u64),
        ];
        if tuning.goal.target.is_some() {
            row.push(Cell::Of(u64::from(last.reached), u64::from(last.runs)));
            row.push(
                last.cost
                    .map_or(Cell::None(number::NONE, NOT), |cost| Cell::Number(cost, number::cost(cost))),
            );
        }
        row.extend([
            last.accuracy.map_or(Cell::None(number::NONE, "A run of it failed"), Cell::percent),
            Cell::cost(Some(trial.costs.spent.run_rollouts as f64)),
            Cell::Words(became(tuning, arm, trial)),
        ]);
        row
    };
    let rows = tuning.arms.iter().flat_map(|arm| arm.trials.iter().map(|trial| row(arm, trial)));
    Table {
        name: "trials",
        title: "All trials".to_owned(),
        note: "Trial 0 is the declared setting, which is never dropped.".to_owned(),
        rows: rows.collect(),
        columns,
    }
}

const NOT: &str = "It did not reach the target";

fn became(tuning: &Tuning, arm: &TunedArm, trial: &Trial) -> String {
    if let Some(reason) = &trial.failed {
        return format!("failed: {reason}");
    }
    if tuning.grid {
        return String::new();
    }
    let last = trial.rungs.len() == tuning.shares.len();
    let word = if trial.number == arm.best {
        "won"
    } else if last {
        "lost in the last rung"
    } else {
        "dropped"
    };
    word.to_owned()
}

/// Returns the name of the measure of trials.
fn goal(tuning: &Tuning) -> String {
    tuning.goal.target.map_or_else(
        || "accuracy".to_owned(),
        |target| format!("{} to {}", tuning.goal.axis.words(), number::percent_tick(target)),
    )
}

fn measure(tuning: &Tuning, of: Measure) -> Cell {
    match (tuning.goal.target, of.cost, of.accuracy) {
        (_, _, None) => Cell::None("failed", "A run of it failed"),
        (Some(_), Some(cost), _) if of.is_settled() => Cell::Number(cost, number::cost(cost)),
        (Some(_), _, Some(_)) => Cell::None("not reached", NOT),
        (None, _, Some(accuracy)) => Cell::percent(accuracy),
    }
}

/// Formats a trial's settings, each named by the last part of its key.
pub fn settings(arm: &TunedArm, trial: &Trial) -> String {
    let one = |(tuned, value): (&Tuned, &Value)| format!("{} {}", short(&tuned.key), shown(value));
    let all: Vec<String> = arm.ranges.iter().zip(&trial.values).map(one).collect();
    let all = all.join(", ");
    if trial.number == 0 { format!("as declared ({all})") } else { all }
}

/// Returns the last part of a key.
pub fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}
