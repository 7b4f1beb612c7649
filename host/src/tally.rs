//! The metrics of a step, under the names that [`allot_outputs::named`] explains.

use std::collections::BTreeMap;

use allot_allocation::{Outcome, Plan, PromptId, is_zero};

use allot_judges::math::Certain;
use allot_record::StepEnd;
use serde::{Deserialize, Serialize};

/// Sums over a step's plans and rollouts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepTally {
    /// Rewards of each prompt, in order of arrival.
    rewards: BTreeMap<PromptId, Vec<f32>>,
    /// Lengths of all rollouts, in generated tokens.
    lengths: Vec<u32>,
    /// Lengths of the rollouts that were not truncated.
    ended: Vec<u32>,
    unscorable: u64,
    /// Rewards by math-verify.
    #[serde(default, skip_serializing_if = "Certain::is_none")]
    certain: Certain,
    /// Turns of all rollouts that are episodes, and tokens that they read from their environments.
    #[serde(default, skip_serializing_if = "is_zero")]
    turns: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    read: u64,
    /// Rollouts that were requested and not granted.
    clipped: u64,
    /// The policy's own metrics by name: sum and count.
    own: BTreeMap<String, (f64, f64)>,
}

/// The sums of a step that waits for its update.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// Sums over its plans and rollouts.
    pub tally: StepTally,
    /// Prompt tokens that the run had read when the step was planned.
    pub prompt_tokens: u64,
}

impl StepTally {
    /// Adds rollouts that were requested and not granted.
    pub fn add_clipped(&mut self, rollouts: u64) {
        self.clipped += rollouts;
    }

    /// Adds rewards by math-verify.
    pub fn add_certain(&mut self, certain: Certain) {
        self.certain += certain;
    }

    /// Adds the metrics of a plan.
    pub fn plan(&mut self, plan: &Plan) {
        for (name, value) in &plan.metrics {
            let (sum, n) = self.own.entry(name.clone()).or_default();
            *sum += value;
            *n += 1.0;
        }
    }

    /// Adds a rollout.
    pub fn add(&mut self, outcome: &Outcome) {
        self.lengths.push(outcome.tokens);
        if !outcome.truncated {
            self.ended.push(outcome.tokens);
        }
        self.turns += outcome.turns.len() as u64;
        self.read += outcome.turns.iter().map(|turn| u64::from(turn.0)).sum::<u64>();
        match outcome.reward {
            Some(reward) => self.rewards.entry(outcome.prompt).or_default().push(reward),
            None => self.unscorable += 1,
        }
    }

    /// Returns the step's metrics, by name. `seconds` is its duration; `num_tokens` is the total number of
    /// tokens read and generated so far.
    pub fn numbers(&self, end: &StepEnd, seconds: f64, num_tokens: u64) -> Vec<(String, f64)> {
        let rewards: Vec<f64> = self.rewards.values().flatten().map(|r| f64::from(*r)).collect();
        let (mean, deviation) = spread(&rewards);
        let flat: usize = self.rewards.values().filter(|g| g.iter().all(|r| *r == g[0])).map(Vec::len).sum();
        let sampled = self.lengths.len() as f64;
        let tokens: f64 = self.lengths.iter().map(|n| f64::from(*n)).sum();
        let mut numbers: Vec<(&str, f64)> = vec![
            ("reward", mean),
            ("reward_std", deviation),
            ("frac_reward_zero_std", share(flat as f64, rewards.len() as f64)),
            ("completions/clipped_ratio", share(sampled - self.ended.len() as f64, sampled)),
            ("num_tokens", num_tokens as f64),
            ("step_time", seconds),
            ("tokens_per_second", tokens / seconds.max(1e-9)),
            ("budget/rollouts", end.spent.run_rollouts as f64),
            ("budget/tokens", end.spent.run_tokens as f64),
            ("alloc/sampled", sampled),
            ("alloc/unscorable", self.unscorable as f64),
            ("alloc/groups", end.groups as f64),
            ("alloc/trained", end.trained as f64),
            ("alloc/effective", end.effective as f64),
            ("alloc/released", end.released as f64),
            ("alloc/flat", end.flat as f64),
            ("alloc/stale", end.stale as f64),
            ("alloc/held", end.held as f64),
            ("alloc/age", end.mean_age),
        ];
        if self.turns > 0 {
            numbers.push(("num_turns/mean", self.turns as f64 / sampled));
            numbers.push(("read_tokens/mean", self.read as f64 / sampled));
        }
        let Certain { judged, certain } = self.certain;
        if judged > 0 {
            numbers.push(("math_verify/judged", judged as f64));
            numbers.push(("math_verify/certain", certain as f64 / judged as f64));
        }
        if self.clipped > 0 {
            numbers.push(("budget/clipped", self.clipped as f64));
        }
        if end.again > 0 {
            numbers.push(("alloc/again", end.again as f64));
        }
        numbers.extend(self.length_numbers());
        let mut numbers: Vec<(String, f64)> =
            numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        numbers.extend(end.rewards.iter().map(|(part, mean)| (format!("rewards/{part}/mean"), *mean)));
        numbers.extend(end.metrics.iter().cloned());
        numbers.extend(end.accuracy.map(|accuracy| ("accuracy".to_owned(), accuracy)));
        numbers.extend(end.scores.iter().cloned());
        numbers.extend(self.own.iter().map(|(name, (sum, n))| (format!("policy/{name}"), sum / n)));
        numbers
    }

    /// Returns the metrics of lengths, by name.
    fn length_numbers(&self) -> Vec<(&'static str, f64)> {
        let mut numbers = Vec::new();
        for (names, lengths) in [
            (["completions/mean_length", "completions/min_length", "completions/max_length"], &self.lengths),
            (
                [
                    "completions/mean_terminated_length",
                    "completions/min_terminated_length",
                    "completions/max_terminated_length",
                ],
                &self.ended,
            ),
        ] {
            let sum: f64 = lengths.iter().map(|n| f64::from(*n)).sum();
            let end = |n: Option<&u32>| n.map_or(0.0, |n| f64::from(*n));
            let three =
                [share(sum, lengths.len() as f64), end(lengths.iter().min()), end(lengths.iter().max())];
            numbers.extend(names.into_iter().zip(three));
        }
        numbers
    }
}

/// Returns mean and sample std (n - 1); 0 if undefined.
fn spread(all: &[f64]) -> (f64, f64) {
    let n = all.len() as f64;
    let mean = share(all.iter().sum(), n);
    let squares: f64 = all.iter().map(|r| (r - mean).powi(2)).sum();
    (mean, share(squares, n - 1.0).sqrt())
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_what_trl_means_by_them() {
        let mut tally = StepTally::default();
        for (prompt, reward, tokens) in [(1, 1.0, 3), (1, 0.0, 5), (2, 1.0, 4), (2, 1.0, 4), (2, 1.0, 8)] {
            let mut outcome = Outcome::of(PromptId(prompt), 0, reward, reward == 1.0);
            outcome.tokens = tokens;
            outcome.truncated = tokens == 8;
            tally.add(&outcome);
        }
        for (step, kept) in [(0.0, None), (2.0, Some(7.0))] {
            let named = |name: &str, value| (name.to_owned(), value);
            let metrics =
                std::iter::once(named("odds", step)).chain(kept.map(|n| named("kept", n))).collect();
            let action = allot_allocation::Action::Sample(Vec::new());
            tally.plan(&Plan { metrics, ..Plan::of(action) });
        }
        let numbers = tally.numbers(&StepEnd::default(), 2.0, 100);
        assert!(numbers.iter().all(|(name, _)| !name.starts_with("math_verify/")), "it was not asked yet");
        let of = |name: &str| numbers.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        assert_eq!(of("reward"), Some(0.8));
        // Over all rollouts, with n - 1.
        assert!((of("reward_std").unwrap_or(0.0) - 0.2_f64.sqrt()).abs() < 1e-12);
        // A share of rollouts, not of groups.
        assert_eq!(of("frac_reward_zero_std"), Some(0.6));
        assert_eq!(of("completions/clipped_ratio"), Some(0.2));
        assert_eq!(of("completions/mean_length"), Some(4.8));
        assert_eq!(of("completions/mean_terminated_length"), Some(4.0));
        assert_eq!(of("completions/max_terminated_length"), Some(5.0));
        assert_eq!(of("tokens_per_second"), Some(12.0));
        // A policy's own metric is the mean over the calls that returned it.
        assert_eq!((of("policy/odds"), of("policy/kept")), (Some(1.0), Some(7.0)));
    }
}
