//! Tables of a forecast.

use super::{Cell, Column, Shape, Table};
use crate::forecast::{Forecast, Policy, finding};
use crate::number;
use crate::report::Estimate;

/// Returns what each policy pays to learn as much as the baseline.
pub fn pays(forecast: &Forecast) -> Table {
    let baseline = forecast.policies.get(forecast.baseline).map_or("the baseline", |policy| &policy.name);
    let mut columns = vec![
        Column::new("policy", "policy", Shape::Words),
        Column::new("rollouts", "rollouts", Shape::Number),
        Column::new("fewer_rollouts", &format!("rollouts, than {baseline}"), Shape::Estimate),
        Column::new("tokens", "tokens", Shape::Number),
        Column::new("fewer_tokens", &format!("tokens, than {baseline}"), Shape::Estimate),
        Column::new("operations", "operations", Shape::Number),
        Column::new("fewer_operations", &format!("operations, than {baseline}"), Shape::Estimate),
    ];
    // Columns of which nothing is known would only make the table wide.
    columns.retain(|column| {
        let unit = ["rollouts", "tokens", "operations"].iter().position(|unit| column.key.ends_with(unit));
        unit.is_none_or(|unit| forecast.unknown[unit].is_none())
    });
    if let Some(best) = &forecast.best {
        let head = format!("rollouts, than {best}");
        columns.insert(3, Column::new("fewer_rollouts_than_best", &head, Shape::Estimate));
    }
    columns.push(Column::new("effective", "rollouts for 1,000 with an advantage", Shape::Number));
    let row = |(place, policy): (usize, &Policy)| {
        let mut row = vec![Cell::Arm(place, policy.name.clone())];
        for unit in (0..3).filter(|unit| forecast.unknown[*unit].is_none()) {
            row.push(policy.pays[unit].filter(|pays| pays.is_finite()).map_or(
                Cell::None(number::NONE, "The log does not tell"),
                |pays| {
                    let words = number::cost(pays) + if unit == 2 { " × P" } else { "" };
                    Cell::Number(pays, words)
                },
            ));
            row.push(match policy.fewer[unit] {
                Some(ratio) if ratio.value.is_finite() => compared(ratio),
                _ if place == forecast.baseline => Cell::None(number::NONE, "This is the baseline"),
                _ => Cell::None(number::NONE, UNKNOWN),
            });
        }
        if forecast.best.is_some() {
            let cell = match policy.than_best {
                Some(ratio) if ratio.value.is_finite() => compared(ratio),
                Some(_) => Cell::None(number::NONE, UNKNOWN),
                None => Cell::None(number::NONE, "This is the baseline with that step"),
            };
            row.insert(3, cell);
        }
        row.push(Cell::cost(Some(policy.effective).filter(|effective| effective.is_finite())));
        row
    };
    Table {
        name: "result",
        title: format!("What each policy pays to learn as much as {baseline}"),
        note: marked(forecast),
        rows: forecast.policies.iter().enumerate().map(row).collect(),
        columns,
    }
}

const UNKNOWN: &str = "Too little of it is known for a ratio";

/// Returns the cell of a ratio, which says the same as the table on the screen.
fn compared(ratio: Estimate) -> Cell {
    finding(ratio).map_or(Cell::Ratio(ratio), |words| Cell::Number(ratio.value, words))
}

/// Says which policies rest on rollouts that the log does not have, and which on lessons that count twice, come late or are of
/// zero-variance groups.
fn marked(forecast: &Forecast) -> String {
    let marked = |words: &str, told: fn(&Policy) -> Option<String>| {
        let one = |policy: &Policy| Some(format!("{} {}", policy.name, told(policy)?));
        let all: Vec<String> = forecast.policies.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("{words}: {}.", all.join(", ")))
    };
    let modelled =
        "* So much of the policy's rollouts is from a fitted model, as the log has too few of each prompt";
    let replayed = "† So much of what the policy trains on it has trained on before. It counts as much again, so the policy may \
                    save less than the table says";
    let often = "‡ The policy stays with few prompts, and learns so many times from each. A late lesson counts as much as the first, so the policy \
                 may save less than the table says";
    let zero_variance = "§ So much of what the policy trains on is from groups with one reward, or of one rollout. A log does not show what such \
                         lessons are worth, so the policy may save less than the table says, or more";
    let notes = [
        marked(modelled, |policy| policy.modelled.map(percent)),
        marked(replayed, |policy| policy.replayed.map(percent)),
        marked(often, |policy| policy.often.map(|times| format!("{times:.0}"))),
        marked(zero_variance, |policy| policy.zero_variance.map(percent)),
    ];
    notes.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns a share as on the screen.
fn percent(share: f64) -> String {
    format!("{:.0}\u{a0}%", 100.0 * share)
}

/// Returns the settings.
pub fn settings(forecast: &Forecast) -> Table {
    let row = |(name, value): &(String, String)| vec![Cell::Words(name.clone()), Cell::Words(value.clone())];
    Table {
        name: "shared",
        title: "How the forecast was made".to_owned(),
        note: String::new(),
        columns: vec![
            Column::new("setting", "setting", Shape::Words),
            Column::new("value", "value", Shape::Words),
        ],
        rows: forecast.settings.iter().map(row).collect(),
    }
}
