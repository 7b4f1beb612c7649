//! Totals of a run's steps, and the closing table.

use allot_allocation::{Action, Outcome, Plan, View};
use allot_record::{End, StepEnd};
use allot_report::seen::{PATIENCE, Seen, Trained};
use serde::{Deserialize, Serialize};

use crate::screen::Screen;

/// Totals of a run's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// The accuracy before the first step.
    pub start: f64,
    /// The latest accuracy.
    pub last: f64,
    /// Number of finished steps.
    pub steps: u64,
    /// Number of steps that updated the model.
    pub updates: u64,
    /// Rollouts trained on, counted once for each step that trained on them.
    pub trained: u64,
    /// Of those, rollouts with an advantage that is not 0.
    pub effective: u64,
    /// Of the rollouts trained on, those that an earlier step had already trained on.
    #[serde(default, skip_serializing_if = "is_none")]
    pub again: u64,
    /// Rollouts discarded unused.
    pub released: u64,
    /// Of those, rollouts of zero-variance groups.
    pub flat: u64,
    /// Rollouts discarded as stale.
    pub stale: u64,
    /// Tokens of prompts, counted once for each rollout.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Rollouts by verdict, and groups by their rewards.
    #[serde(default)]
    pub seen: Seen,
}

impl Totals {
    /// Returns the totals before the first step, with the first accuracy.
    pub fn new(start: f64) -> Self {
        Self {
            start,
            last: start,
            steps: 0,
            updates: 0,
            trained: 0,
            effective: 0,
            again: 0,
            released: 0,
            flat: 0,
            stale: 0,
            prompt_tokens: 0,
            seen: Seen::default(),
        }
    }

    /// Adds the groups of a plan that ends a step.
    pub fn decided(&mut self, view: &View, plan: &Plan) {
        if matches!(plan.action, Action::Train(_)) {
            self.seen.groups(&view.groups);
        }
    }

    /// Adds rollouts that have arrived.
    pub fn sampled(&mut self, outcomes: &[Outcome]) {
        self.seen.outcomes(outcomes);
    }

    /// Returns a sentence about why the run has learned nothing so far; none if it has.
    fn nothing_learned(&self) -> Option<String> {
        let Self { updates, effective, .. } = *self;
        self.seen.nothing_learned(Trained { updates, rollouts: self.trained, effective })
    }

    /// Returns a warning after the step that shows that the run learns nothing, and only after that step.
    pub fn warning(&self) -> Option<String> {
        let words = self.nothing_learned().filter(|_| self.steps == PATIENCE)?;
        Some(format!("warning: after {PATIENCE} steps, {words}"))
    }

    /// Adds a step.
    pub fn add(&mut self, step: &StepEnd) {
        self.last = step.accuracy.unwrap_or(self.last);
        self.steps += 1;
        self.updates += u64::from(step.updated);
        self.trained += step.trained;
        self.effective += step.effective;
        self.again += step.again;
        self.released += step.released;
        self.flat += step.flat;
        self.stale += step.stale;
    }

    /// Shows the closing table, with the rows of the run's world.
    pub fn show(&self, end: &End, more: Vec<Row>, screen: &mut Screen<'_>) {
        screen.say(format_args!("{}", end.reason));
        let rows: Vec<Row> = self.rows(end).into_iter().chain(more).collect();
        let widest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        for Row { name, number, share } in rows {
            screen.say(format_args!("  {name:<widest$}{number:>10}{share}"));
        }
        self.nothing_learned().into_iter().for_each(|words| screen.say(words));
    }

    fn rows(&self, end: &End) -> Vec<Row> {
        let (t, sampled) = (self, end.spent.run_rollouts);
        let trained = t.trained - t.again;
        let unused = sampled - trained - t.released - t.stale;
        let of_sampled = |name, n| Row::share(name, n, sampled);
        let mut rows = vec![of_sampled("rollouts sampled", sampled), of_sampled("  trained on", trained)];
        if t.again == 0 {
            rows.push(of_sampled("    with an advantage", t.effective));
        } else {
            rows.push(Row::number("    and again, in later steps", t.again));
            rows.push(Row::number("    each time with an advantage", t.effective));
        }
        rows.extend([
            of_sampled("  discarded", t.released),
            of_sampled("    of zero-variance groups", t.flat),
            of_sampled("  stale", t.stale),
            of_sampled("  left in the buffer, or unscorable", unused),
            Row::number("generated tokens", end.spent.run_tokens),
            Row::number("model updates", t.updates),
        ]);
        rows
    }

    /// Returns the rows of the accuracy at the end and at the start.
    pub fn accuracies(&self, end: &End) -> Vec<Row> {
        let last = end.accuracy.unwrap_or(self.last);
        vec![
            Row::text("held-out accuracy", format!("{last:.4}")),
            Row::text("  at the start", format!("{:.4}", self.start)),
        ]
    }

    /// Returns the accuracy at the start and at the end, as JSON.
    pub fn accuracies_json(&self, end: &End) -> serde_json::Value {
        serde_json::json!({ "accuracy_start": self.start, "accuracy": end.accuracy.unwrap_or(self.last) })
    }

    /// Returns the closing table as a JSON object, with the part of the run's world.
    pub fn json(
        &self,
        end: &End,
        policy: &str,
        sha256: &str,
        seed: u64,
        more: serde_json::Value,
    ) -> serde_json::Value {
        let t = self;
        let mut json = serde_json::json!({
            "policy": policy, "sha256": sha256, "seed": seed, "reason": end.reason,
            "steps": t.steps, "updates": t.updates, "rollouts": end.spent.run_rollouts,
            "tokens": end.spent.run_tokens, "trained": t.trained, "again": t.again, "effective": t.effective,
            "released": t.released, "flat": t.flat, "stale": t.stale,
            "nothing_learned": t.nothing_learned(),
        });
        if let (Some(json), serde_json::Value::Object(more)) = (json.as_object_mut(), more) {
            json.extend(more);
        }
        json
    }
}

/// A row of the closing table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    name: &'static str,
    number: String,
    /// The share after the number, as text.
    share: String,
}

impl Row {
    /// Returns a row with a number.
    pub fn number(name: &'static str, n: u64) -> Self {
        Self::text(name, n.to_string())
    }

    /// Returns a row with a number as text.
    pub fn text(name: &'static str, number: String) -> Self {
        Self { name, number, share: String::new() }
    }

    /// Returns a row with a number and its share of another.
    pub fn share(name: &'static str, n: u64, of: u64) -> Self {
        Self { name, number: n.to_string(), share: format!("  {:>5.1} %", percent(n, of)) }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

/// Returns a share in percent; 0 if the whole is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
