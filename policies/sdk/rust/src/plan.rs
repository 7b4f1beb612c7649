//! Plans, put together a line at a time.

use crate::types::{Action, Advantage, Batch, Pick, Plan, PromptId, Request};

impl Request {
    /// `count` more rollouts of a prompt.
    pub fn new(prompt: PromptId, count: u32) -> Self {
        Self { prompt, count }
    }
}

impl Pick {
    /// All rollouts of a prompt, measured against each other.
    pub fn all(prompt: PromptId) -> Self {
        Self { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 }
    }

    /// Some rollouts of a prompt, by their positions in its group, measured against each other.
    pub fn some(prompt: PromptId, positions: Vec<u32>) -> Self {
        Self { rollouts: Some(positions), ..Self::all(prompt) }
    }

    /// The same pick, with advantages made in another way.
    pub fn advantage(self, advantage: Advantage) -> Self {
        Self { advantage, ..self }
    }
}

impl Plan {
    /// Sample these, then ask again.
    pub fn sample(requests: impl IntoIterator<Item = Request>) -> Self {
        Self::of(Action::Sample(requests.into_iter().collect()))
    }

    /// Train on these, and end the step.
    pub fn train(picks: impl IntoIterator<Item = Pick>) -> Self {
        Self::of(Action::Train(Batch { picks: picks.into_iter().collect(), hold: Vec::new() }))
    }

    fn of(action: Action) -> Self {
        Self { action, skip: Vec::new(), evict: Vec::new(), state: Vec::new(), metrics: Vec::new() }
    }

    /// Keep the rollouts of these prompts on hand for the next step.
    ///
    /// # Panics
    /// If the plan samples: only one that trains lets go of anything.
    pub fn hold(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        match &mut self.action {
            Action::Train(batch) => batch.hold.extend(prompts),
            Action::Sample(_) => panic!("`hold` on a plan that samples; such a plan lets nothing go"),
        }
        self
    }

    /// Pass over these prompts of the pool until the next epoch.
    pub fn skip(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        self.skip.extend(prompts);
        self
    }

    /// Never offer these prompts again in this run.
    pub fn evict(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        self.evict.extend(prompts);
        self
    }

    /// Log a number beside the run's own.
    pub fn metric(mut self, name: &str, value: f64) -> Self {
        self.metrics.push((name.to_owned(), value));
        self
    }
}
