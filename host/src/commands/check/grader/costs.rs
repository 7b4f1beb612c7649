//! The cost of a grader's calls, by batch.

use std::time::Instant;

use allot_allocation::Value;
use allot_authoring::questions::Made;
use allot_judges::component::BATCH;
use allot_sandbox::{Asked, Grader};
use serde_json::json;

use super::trial::{as_group, asked};
use crate::commands::check::cost::Cost;
use crate::commands::check::time::Time;
use crate::screen::Screen;

/// Number of calls per batch.
const CALLS: usize = 3;

/// The costs of a grader.
pub struct Costs<'m> {
    rows: Vec<Row<'m>>,
}

/// The cost of a call with this batch.
struct Row<'m> {
    what: &'static str,
    batch: Vec<Asked<'m>>,
    cost: Cost,
}

impl<'m> Costs<'m> {
    /// Returns costs that are not measured yet. A grader that compares is asked about one group.
    pub fn new(made: &'m [Made], compares: bool) -> Self {
        let row = |what, batch: Vec<&'m Made>| {
            let batch = batch.into_iter().map(asked).collect();
            Row { what, batch, cost: Cost::default() }
        };
        let Some(short) = made.first() else { return Self { rows: Vec::new() } };
        let long = made.iter().max_by_key(|one| one.answer.len()).unwrap_or(short);
        let rows = vec![
            row("a short answer", vec![short]),
            row("a batch of them", vec![short; BATCH]),
            row("a long answer", vec![long]),
            Row {
                what: "all that were made",
                batch: if compares { as_group(made) } else { made.iter().map(asked).collect() },
                cost: Cost::default(),
            },
        ];
        Self { rows }
    }

    /// Measures each cost once. The first is always measured, the others within a fifth of the time.
    pub fn once(&mut self, grader: &Grader, settings: &[(String, Value)], time: Time) {
        let started = Instant::now();
        for (i, Row { batch, cost, .. }) in self.rows.iter_mut().enumerate() {
            if i == 0 || started.elapsed() < time.within / 5 {
                cost.measure(time, || Ok(grader.grade(settings, batch)?.1));
            }
        }
    }

    /// Measures again until the time is over.
    pub fn again(&mut self, grader: &Grader, settings: &[(String, Value)], time: Time) {
        for Row { batch, cost, .. } in &mut self.rows {
            for _ in 1..CALLS {
                if !time.is_over() && cost.fault().is_none() {
                    cost.measure(time, || Ok(grader.grade(settings, batch)?.1));
                }
            }
        }
    }

    /// Returns the costs that were not measured, in words.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let rows = self.rows.iter().filter(|row| row.cost.is_missing());
        rows.map(|row| format!("the cost of {} was not measured", row.what))
    }

    /// Shows the table as text.
    pub fn show(&self, screen: &mut Screen<'_>) {
        let head = ["", "answers", "bytes"];
        screen.say(format_args!("{:<18}  {:>7}  {:>8}  {}", head[0], head[1], head[2], Cost::head()));
        for Row { what, batch, cost } in &self.rows {
            let (answers, bytes) = (batch.len(), bytes(batch));
            screen.say(format_args!("{what:<18}  {answers:>7}  {bytes:>8}  {}", cost.columns()));
        }
    }

    /// Returns the rows of the table as JSON.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let row = |Row { what, batch, cost }: &Row<'_>| {
            cost.json(json!({ "what": what, "answers": batch.len(), "bytes": bytes(batch) }))
        };
        self.rows.iter().map(row).collect()
    }
}

fn bytes(batch: &[Asked<'_>]) -> usize {
    batch.iter().map(|one| one.answer.len()).sum()
}
