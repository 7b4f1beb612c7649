//! The lines of a record.
//!
//! No line holds a time, a path or anything else that two runs of one config could differ in: a run
//! that is repeated gives the same bytes.

use allot_allocation::advantage::Scale;
use allot_allocation::{
    Action, Budget, Ceilings, Column, Compute, Group, Limits, Order, Outcome, Plan, Portions, Prompt,
    PromptId, Run, Spent, Terms, Value, View, total,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::StateChange;

/// The version of this format.
pub const FORMAT: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// What the run is. The first line.
    Head(Box<Head>),
    /// A column of the data set that a policy is shown: after the head, or before another policy takes over.
    Column(Box<Column>),
    /// A call of the policy, and what it answered.
    Call(Box<Call>),
    /// What the engine sampled on that answer, and what the reward said of it.
    Rollouts(Box<Rollouts>),
    /// The end of a step.
    Step(Box<StepEnd>),
    /// Another policy takes over, between two steps.
    Swap(Box<Swap>),
    /// The end of the run. Missing if it was cut off.
    End(End),
}

/// What a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: u32,
    /// The program's version.
    pub allot: String,
    /// What the run is called in a comparison, where it has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The policy.
    pub policy: PolicyStamp,
    /// The engine's name.
    pub engine: String,
    /// Signals shown beside each rollout, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// Seeded all randomness.
    pub seed: u64,
    /// The order of the prompts.
    pub order: Order,
    /// The run as the policy sees it, settings in force included.
    pub run: Run,
    /// What it may spend.
    pub limits: Limits,
    /// What it may compute, and for how long, where that is limited.
    #[serde(default, skip_serializing_if = "Ceilings::are_none")]
    pub ceilings: Ceilings,
    /// What one call of the policy may use.
    pub caps: CapsStamp,
    /// The state that `begin` gave, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The score before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// What the score is made of, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// How rewards became advantages: [`Head::scale`] knows of records that do not tell it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantage: Option<Scale>,
    /// What was trained and on what, where it is a model: hashes of its weights and of its problems, the
    /// sampling, the loss, the optimizer. No path and no name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<serde_json::Value>,
    /// The made world of a simulated run, its numbers in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<serde_json::Value>,
}

/// What one call of a policy may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapsStamp {
    /// Wasm instructions.
    pub fuel: u64,
    /// Seconds on the clock.
    pub seconds: f64,
    /// Bytes of memory.
    pub memory: usize,
}

/// Which policy it was, to the byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStamp {
    /// Its name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// The contract version it speaks.
    pub contract: String,
    /// The sha256 of its component; of a draft, of its sources.
    pub sha256: String,
    /// Whether it is a draft: a policy in Python that Python itself ran.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draft: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A call of the policy. A view is told by what changed since the last one: [`super::Views`] puts
/// them together again.
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
    /// Prompts that came on offer since the last call, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<Prompt>,
    /// Prompts in the view's pool, groups in it, and rollouts in those: a check on the reader.
    pub counts: [u64; 3],
    /// The plan.
    pub plan: Plan,
    /// How the state that came with it differs from the one before; missing where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateChange>,
    /// Rollouts that the plan asked for: of a request in portions, its first.
    pub asked: u64,
    /// Rollouts that the budget allowed of them.
    pub granted: u64,
    /// In a run with a lag, of a plan that trains: [`StepEnd::unaffordable`], known before that line.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unaffordable: u64,
}

/// What was sampled in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollouts {
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The rollouts, in the order they were granted.
    pub sampled: Vec<Sampled>,
    /// Rollouts that the budget allowed of the plan's next portion, which comes in a line of its own.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub more: u64,
}

/// Rollouts of one prompt that came into the buffer. The lists run in parallel; an unscorable rollout is
/// in none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The prompt.
    pub prompt: PromptId,
    /// Rewards.
    pub rewards: Vec<f32>,
    /// A `1` for each correct one, a `0` for each other.
    pub correct: String,
    /// Lengths, in tokens.
    pub tokens: Vec<u32>,
    /// A `1` for each that met the length limit, a `0` for each other.
    pub truncated: String,
    /// A list for each signal, then one for each part of the reward that the policy is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Vec<f32>>,
    /// How many more could not be scored.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unscorable: u32,
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
    /// Of those, rollouts that an earlier update was made on, too.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub again: u64,
    /// Of those, rollouts with an advantage that is not 0.
    pub effective: u64,
    /// Rollouts discarded unused.
    pub released: u64,
    /// Of the released, those of groups with all rewards equal.
    pub flat: u64,
    /// Rollouts discarded as stale.
    pub stale: u64,
    /// Rollouts that stay buffered.
    pub held: u64,
    /// Rollouts trained on that a plan held, and that left the buffer because the budget of operations has no room for
    /// another update on them: the last of those, in the batch's order.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub unaffordable: u64,
    /// Mean age of the rollouts trained on, in model updates.
    pub mean_age: f64,
    /// Mean reward of the step's rollouts, trained on or not.
    pub reward: f64,
    /// Means of the parts of those rewards, by name, where a judge gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f64)>,
    /// What was spent so far.
    pub spent: Spent,
    /// What was computed so far, evaluation left out.
    #[serde(default, skip_serializing_if = "Compute::is_nothing")]
    pub compute: Compute,
    /// What the engine reports of the update. The policy's own metrics are in its plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, f64)>,
    /// The score, where it was taken after this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// What the score is made of, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// What evaluation had spent by then, in a book of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Spent>,
}

/// Another policy takes over. What the host remembers stays: the pool, the buffered rollouts, the ledger. What
/// the policy before remembered is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swap {
    /// The first step under it.
    pub step: u32,
    /// The policy.
    pub policy: PolicyStamp,
    /// Its settings in force.
    pub settings: Vec<(String, Value)>,
    /// How the run samples and learns, where its contract tells of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// What one call of it may use.
    pub caps: CapsStamp,
    /// The state that its `begin` gave, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why it ended, in words.
    pub reason: String,
    /// Whether that is a normal end.
    pub normal: bool,
    /// Steps finished.
    pub steps: u32,
    /// What was spent.
    pub spent: Spent,
    /// What was computed so far, evaluation left out.
    #[serde(default, skip_serializing_if = "Compute::is_nothing")]
    pub compute: Compute,
    /// The score at the end, where it could be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// What the score is made of, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(String, f64)>,
    /// What evaluation spent, in a book of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Spent>,
}

impl Head {
    /// How rewards became advantages. An older record has it in `training` or, of a simulation and of a
    /// trainer in Python, nowhere: there it is taken for the default.
    pub fn scale(&self) -> Scale {
        let before = || Scale::deserialize(&self.training.as_ref()?["advantage"]).ok();
        self.advantage.or_else(before).unwrap_or_default()
    }

    /// How many numbers each rollout has beside the reward: the signals, then the parts of the reward.
    pub fn lists(&self) -> usize {
        self.signals.len() + self.run.parts().len()
    }
}

impl Sampled {
    /// Outcomes in their order as a record tells them, a list for each prompt.
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
                    unscorable: 0,
                });
            }
            let Some(last) = all.last_mut() else { continue };
            let Some(reward) = outcome.reward else {
                last.unscorable += 1;
                continue;
            };
            last.rewards.push(reward);
            last.correct.push(if outcome.correct { '1' } else { '0' });
            last.tokens.push(outcome.tokens);
            last.truncated.push(if outcome.truncated { '1' } else { '0' });
            last.signals.iter_mut().zip(&outcome.signals).for_each(|(list, s)| list.push(*s));
        }
        all
    }

    /// The scored outcomes again; `None` if the lists do not run in parallel, or hold anything else
    /// than they should.
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
        let one = |i: usize| Outcome {
            prompt: self.prompt,
            position: i as u32,
            reward: Some(self.rewards[i]),
            correct: self.correct.as_bytes()[i] == b'1',
            tokens: self.tokens[i],
            truncated: self.truncated.as_bytes()[i] == b'1',
            signals: self.signals.iter().map(|list| list[i]).collect(),
            sampling: None,
        };
        Some((0..n).map(one).collect())
    }
}

impl Call {
    /// A call and its plan, which changed the policy's state so. `offered` are the prompts that came on offer since the last
    /// call, `granted` the rollouts that the budget allowed.
    pub fn of(
        view: &View,
        plan: &Plan,
        changed: Option<StateChange>,
        offered: Vec<Prompt>,
        granted: u64,
    ) -> Self {
        let asked = match &plan.action {
            Action::Sample(requests) => total(&Portions::of(requests).due()),
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

    /// The counts of a view.
    pub fn counts(pool: &[Prompt], groups: &[Group]) -> [u64; 3] {
        [pool.len() as u64, groups.len() as u64, groups.iter().map(|g| g.len() as u64).sum()]
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The sha256 of bytes, in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// The bytes of hexadecimal text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
