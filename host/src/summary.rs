//! What a run's steps add up to, and the table at its end.

use allot_record::{End, StepEnd};
use serde::{Deserialize, Serialize};

use crate::screen::Screen;

/// What the steps add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// The score before the first step.
    pub start: f64,
    /// The last score taken.
    pub last: f64,
    /// Steps finished.
    pub steps: u64,
    /// Steps that updated the model.
    pub updates: u64,
    /// Rollouts trained on, each counted in each step in which it was.
    pub trained: u64,
    /// Of those, rollouts with an advantage that is not 0.
    pub effective: u64,
    /// Of those trained on, rollouts that an earlier step had trained on, too.
    #[serde(default, skip_serializing_if = "is_none")]
    pub again: u64,
    /// Rollouts discarded unused.
    pub released: u64,
    /// Of those, rollouts of zero-variance groups.
    pub flat: u64,
    /// Rollouts discarded as stale.
    pub stale: u64,
    /// Tokens of prompts, each counted for each of its rollouts.
    #[serde(default)]
    pub prompt_tokens: u64,
}

impl Totals {
    /// Nothing yet, but a first score.
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
        }
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

    /// The table at the end of a run.
    pub fn show(&self, end: &End, screen: &mut Screen<'_>) {
        let (t, sampled) = (self, end.spent.run_rollouts);
        let trained = t.trained - t.again;
        let unused = sampled - trained - t.released - t.stale;
        screen.say(format_args!("{}", end.reason));
        let last = end.accuracy.unwrap_or(t.last);
        let of_sampled = |n: u64| (n.to_string(), format!("  {:>5.1} %", percent(n, sampled)));
        let alone = |text: String| (text, String::new());
        let with_advantage = if t.again == 0 {
            vec![("    with an advantage", of_sampled(t.effective))]
        } else {
            let again = ("    and again, in later steps", alone(t.again.to_string()));
            vec![again, ("    each time with an advantage", alone(t.effective.to_string()))]
        };
        let first = [("rollouts sampled", of_sampled(sampled)), ("  trained on", of_sampled(trained))];
        let rest = [
            ("  discarded", of_sampled(t.released)),
            ("    of zero-variance groups", of_sampled(t.flat)),
            ("  stale", of_sampled(t.stale)),
            ("  left in the buffer, or unscorable", of_sampled(unused)),
            ("generated tokens", alone(end.spent.run_tokens.to_string())),
            ("model updates", alone(t.updates.to_string())),
            ("held-out accuracy", alone(format!("{last:.4}"))),
            ("  at the start", alone(format!("{:.4}", t.start))),
        ];
        let rows: Vec<_> = first.into_iter().chain(with_advantage).chain(rest).collect();
        let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, (number, share)) in rows {
            screen.say(format_args!("  {name:<widest$}{number:>10}{share}"));
        }
    }

    /// The same as JSON.
    pub fn json(&self, end: &End, policy: &str, sha256: &str, seed: u64) -> serde_json::Value {
        let t = self;
        serde_json::json!({
            "policy": policy, "sha256": sha256, "seed": seed, "reason": end.reason,
            "steps": t.steps, "updates": t.updates, "rollouts": end.spent.run_rollouts,
            "tokens": end.spent.run_tokens, "trained": t.trained, "again": t.again, "effective": t.effective,
            "released": t.released, "flat": t.flat, "stale": t.stale,
            "accuracy_start": t.start, "accuracy": end.accuracy.unwrap_or(t.last),
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

/// A share in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
