//! The lines of a record.
//!
//! No line contains a time, a path or any other value that differs between two runs of the same config, so
//! repeating a run gives the same bytes.

use allot_allocation::advantage::Scale;
use allot_allocation::{
    Action, Budget, Ceilings, Column, Compute, Group, Limits, Order, Outcome, Plan, Portions, Prompt,
    PromptId, Run, Spent, Start, Stopped, Terms, TurnLength, Value, View, total,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::StateChange;

/// Version of the record's format.
pub const FORMAT: u32 = 1;

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// The properties of the run. The first line.
    Head(Box<Head>),
    /// A column of the data set that a policy is shown. It follows the head or precedes a change of policy.
    Column(Box<Column>),
    /// A call of the policy, with its plan.
    Call(Box<Call>),
    /// Rollouts that the engine sampled on a plan, with their rewards.
    Rollouts(Box<Rollouts>),
    /// The end of a step.
    Step(Box<StepEnd>),
    /// A change of policy between two steps.
    Swap(Box<Swap>),
    /// The end of the run. Missing if the run was interrupted.
    End(End),
}

/// The properties of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: u32,
    /// The program's version.
    pub allot: String,
    /// The run's name in a comparison, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The policy.
    pub policy: PolicyStamp,
    /// The engine's name.
    pub engine: String,
    /// Signals shown beside each rollout, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// The seed of all randomness.
    pub seed: u64,
    /// The order of the prompts.
    pub order: Order,
    /// The run as the policy sees it, including the policy's settings.
    pub run: Run,
    /// How often a plan's request is served again the rollouts that it lost to their environment.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub retries: u32,
    /// The limits on rounds, rollouts and tokens.
    pub limits: Limits,
    /// The limits on operations and seconds, if there are any.
    #[serde(default, skip_serializing_if = "Ceilings::are_none")]
    pub ceilings: Ceilings,
    /// The limits on one call of the policy.
    pub caps: CapsStamp,
    /// The state returned by the policy's `begin`, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Held-out accuracy before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Further results of that evaluation, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// How rewards become advantages. [`Head::scale`] also handles records without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantage: Option<Scale>,
    /// How a real model was trained: hashes of its weights and problems, and the settings of sampling, loss
    /// and optimizer. Contains no paths or file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<serde_json::Value>,
    /// SHA-256 of the lengths of all prompts in their order, in a run of a trainer in Python: each as a little-endian `u32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<String>,
    /// The simulated world of a simulated run, with its final numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<serde_json::Value>,
}

/// The limits on one call of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapsStamp {
    /// Wasm instructions.
    pub fuel: u64,
    /// Seconds of wall-clock time.
    pub seconds: f64,
    /// Memory, in bytes.
    pub memory: usize,
}

/// The exact identity of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStamp {
    /// The name.
    pub name: String,
    /// The policy's own version.
    pub version: String,
    /// The version of the contract that it uses.
    pub contract: String,
    /// The sha256 of the component. For a draft, of its sources.
    pub sha256: String,
    /// Whether the policy is a draft: a Python policy run by Python itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draft: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A call of the policy. It contains only the changes of the view since the last call. [`super::Views`]
/// restores complete views.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The view's seed.
    pub seed: u32,
    /// The view's budget.
    pub budget: Budget,
    /// Prompts added to the pool since the last call, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<Prompt>,
    /// Numbers of prompts, groups and rollouts in the view: a check for readers.
    pub counts: [u64; 3],
    /// The plan.
    pub plan: Plan,
    /// The change of the policy's state. Missing if the state is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateChange>,
    /// Rollouts requested by the plan. For requests in portions, only the first portion of each.
    pub asked: u64,
    /// Rollouts granted of those requested.
    pub granted: u64,
    /// For a plan that trains, in a run with a lag: [`StepEnd::unaffordable`], known before that line.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unaffordable: u64,
}

/// The rollouts of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollouts {
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The rollouts, in the order they were granted.
    pub sampled: Vec<Sampled>,
    /// Rollouts granted of the plan's next portion, which has a separate line.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub more: u64,
}

/// Rollouts of one prompt that were added to the buffer. The lists run in parallel and leave out rollouts
/// that could not be scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The prompt.
    pub prompt: PromptId,
    /// Rewards.
    pub rewards: Vec<f32>,
    /// One character per rollout: `1` if correct, `0` if not.
    pub correct: String,
    /// Lengths, in generated tokens.
    pub tokens: Vec<u32>,
    /// One character per rollout: `1` if it reached the length limit, `0` if not.
    pub truncated: String,
    /// One list per signal, then one per reward component that the policy is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Vec<f32>>,
    /// Each rollout's turns, if they are episodes: tokens read before a turn, and generated in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Vec<TurnLength>>,
    /// Why each rollout stopped, if they are episodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<Stopped>,
    /// What each rollout continues, if one does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Option<Start>>,
    /// Number of further rollouts that could not be scored.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unscorable: u32,
    /// How many of these were lost to their environment.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub lost: u32,
}

/// The end of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    /// The step.
    pub step: u32,
    /// Whether the model was updated.
    pub updated: bool,
    /// Groups trained on.
    pub groups: u64,
    /// Rollouts trained on.
    pub trained: u64,
    /// How many of `trained` had been trained on in an earlier update.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub again: u64,
    /// How many of `trained` have a nonzero advantage.
    pub effective: u64,
    /// Rollouts never trained on, discarded because no plan held them.
    pub released: u64,
    /// How many of `released` belong to zero-variance groups.
    pub flat: u64,
    /// Rollouts discarded as stale.
    pub stale: u64,
    /// Rollouts that stay buffered.
    pub held: u64,
    /// Rollouts that were trained on and held, but discarded because the limit on operations leaves no room
    /// for another update on them. These are the last ones in the batch's order.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unaffordable: u64,
    /// Mean age of the rollouts trained on, in model updates.
    pub mean_age: f64,
    /// Mean reward of the rollouts sampled in this step, trained on or not.
    pub reward: f64,
    /// Means of the reward components, by name, if the grader returns components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f64)>,
    /// Amounts spent so far.
    pub spent: Spent,
    /// Compute so far, without evaluation.
    #[serde(default, skip_serializing_if = "Compute::is_nothing")]
    pub compute: Compute,
    /// Metrics of the update, reported by the engine. The policy's own metrics are in its plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, f64)>,
    /// Held-out accuracy after this step, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Further results of that evaluation, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// Amounts spent on evaluation so far, counted separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Spent>,
}

/// A change of policy. The host keeps the pool, the buffered rollouts and the ledger. The state of the
/// previous policy is dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swap {
    /// The first step of the new policy.
    pub step: u32,
    /// The new policy.
    pub policy: PolicyStamp,
    /// Its settings.
    pub settings: Vec<(String, Value)>,
    /// How the run samples and trains, if the policy's contract includes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// The limits on one call of the policy.
    pub caps: CapsStamp,
    /// The state returned by its `begin`, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The reason for the end, in words.
    pub reason: String,
    /// Whether the run ended normally.
    pub normal: bool,
    /// Steps finished.
    pub steps: u32,
    /// Amounts spent in the run.
    pub spent: Spent,
    /// Compute so far, without evaluation.
    #[serde(default, skip_serializing_if = "Compute::is_nothing")]
    pub compute: Compute,
    /// Held-out accuracy at the end, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Further results of that evaluation, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// Amounts spent on evaluation, counted separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Spent>,
}

impl Head {
    /// Returns how rewards became advantages. Older records have it in `training`, or not at all for
    /// simulations and Python trainers. If it is missing, returns the default.
    pub fn scale(&self) -> Scale {
        let before = || Scale::deserialize(&self.training.as_ref()?["advantage"]).ok();
        self.advantage.or_else(before).unwrap_or_default()
    }

    /// Returns the number of values per rollout besides the reward: signals and reward components.
    pub fn lists(&self) -> usize {
        self.signals.len() + self.run.parts().len()
    }
}

impl Sampled {
    /// Returns outcomes as lists, one entry for each run of consecutive outcomes of a prompt.
    pub fn of(outcomes: &[Outcome], signals: usize) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for outcome in outcomes {
            if all.last().is_none_or(|last| last.prompt != outcome.prompt) {
                all.push(Self {
                    prompt: outcome.prompt,
                    rewards: Vec::new(),
                    correct: String::new(),
                    tokens: Vec::new(),
                    truncated: String::new(),
                    signals: vec![Vec::new(); signals],
                    turns: Vec::new(),
                    stopped: Vec::new(),
                    starts: Vec::new(),
                    unscorable: 0,
                    lost: 0,
                });
            }
            let Some(last) = all.last_mut() else { continue };
            let Some(reward) = outcome.reward else {
                last.unscorable += 1;
                last.lost += u32::from(outcome.is_lost());
                continue;
            };
            last.rewards.push(reward);
            last.correct.push(if outcome.correct { '1' } else { '0' });
            last.tokens.push(outcome.tokens);
            last.truncated.push(if outcome.truncated { '1' } else { '0' });
            last.signals.iter_mut().zip(&outcome.signals).for_each(|(list, s)| list.push(*s));
            if !outcome.turns.is_empty() || !last.turns.is_empty() {
                last.turns.resize(last.rewards.len() - 1, Vec::new());
                last.turns.push(outcome.turns.clone());
            }
            last.stopped.extend(outcome.stopped);
            if outcome.start.is_some() || !last.starts.is_empty() {
                last.starts.resize(last.rewards.len() - 1, None);
                last.starts.push(outcome.start);
            }
        }
        all
    }

    /// Returns the scored outcomes. `None` if the lists have different lengths or invalid characters.
    pub fn outcomes(&self) -> Option<Vec<Outcome>> {
        let n = self.rewards.len();
        let lists = [self.correct.len(), self.tokens.len(), self.truncated.len()];
        if self.correct.bytes().chain(self.truncated.bytes()).any(|b| b != b'0' && b != b'1') {
            return None;
        }
        if lists
            .iter()
            .chain(self.signals.iter().map(Vec::len).collect::<Vec<_>>().iter())
            .any(|len| *len != n)
        {
            return None;
        }
        // Turns add up to a rollout's length.
        let generated = |turns: &Vec<TurnLength>| turns.iter().map(|turn| u64::from(turn.1)).sum::<u64>();
        let adds_up = |(turns, tokens): (&Vec<TurnLength>, &u32)| {
            turns.is_empty() || generated(turns) == u64::from(*tokens)
        };
        if !self.turns.is_empty() && self.turns.len() != n
            || !self.turns.iter().zip(&self.tokens).all(adds_up)
            || ![0, n].contains(&self.stopped.len())
            || ![0, n].contains(&self.starts.len())
        {
            return None;
        }
        let one = |i: usize| Outcome {
            prompt: self.prompt,
            position: i as u32,
            reward: Some(self.rewards[i]),
            correct: self.correct.as_bytes()[i] == b'1',
            tokens: self.tokens[i],
            truncated: self.truncated.as_bytes()[i] == b'1',
            signals: self.signals.iter().map(|list| list[i]).collect(),
            sampling: None,
            turns: self.turns.get(i).cloned().unwrap_or_default(),
            stopped: self.stopped.get(i).copied(),
            start: self.starts.get(i).copied().flatten(),
        };
        Some((0..n).map(one).collect())
    }
}

impl Call {
    /// Returns the line for a call with its plan. `changed` is the change of the policy's state, `offered`
    /// the prompts added to the pool since the last call, and `granted` the rollouts granted.
    pub fn of(
        view: &View,
        plan: &Plan,
        changed: Option<StateChange>,
        offered: Vec<Prompt>,
        granted: u64,
    ) -> Self {
        let asked = match &plan.action {
            Action::Sample(requests) => total(&Portions::of(requests, 0).due()),
            Action::Train(_) => 0,
        };
        let Plan { action, skip, defer, evict, state: _, metrics } = plan;
        Self {
            step: view.step,
            round: view.round,
            seed: view.seed,
            budget: view.budget,
            offered,
            counts: Self::counts(&view.pool, &view.groups),
            plan: Plan {
                action: action.clone(),
                skip: skip.clone(),
                defer: defer.clone(),
                evict: evict.clone(),
                state: Vec::new(),
                metrics: metrics.clone(),
            },
            state: changed,
            asked,
            granted,
            unaffordable: 0,
        }
    }

    /// Returns the numbers of prompts, groups and rollouts in a view.
    pub fn counts(pool: &[Prompt], groups: &[Group]) -> [u64; 3] {
        [pool.len() as u64, groups.len() as u64, groups.iter().map(|g| g.len() as u64).sum()]
    }
}

/// Returns bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the sha256 of bytes, in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// Parses hexadecimal text. `None` if it is invalid.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
