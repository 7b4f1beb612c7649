//! Plans, put together a line at a time.

use crate::types::{
    Action, Advantage, Batch, Enough, Hold, Pick, Plan, PromptId, Request, Sampling, Start, Update,
};

impl Request {
    /// `count` more rollouts of a prompt.
    pub fn new(prompt: PromptId, count: u32) -> Self {
        Self { prompt, count, until: None, sampling: None, starts: Vec::new() }
    }

    /// One more rollout for each of these: it continues a buffered rollout of the prompt, or begins with the prompt
    /// where there is none. The policy has [`Needs::STARTING`](crate::types::Needs::STARTING).
    pub fn starting(prompt: PromptId, starts: Vec<Option<Start>>) -> Self {
        Self { count: starts.len() as u32, starts, ..Self::new(prompt, 0) }
    }

    /// The same request, ended early: after the `portion` by which so many of its rollouts are correct and so many
    /// wrong. The policy has [`Needs::STOPPING`](crate::types::Needs::STOPPING).
    pub fn until(self, correct: u32, wrong: u32, portion: u32) -> Self {
        Self { until: Some(Enough { correct, wrong, portion }), ..self }
    }

    /// The same request, sampled in another way:
    /// `.sampling(Sampling { temperature: 0.6, ..run.sampling.default })`. The policy has
    /// [`Needs::SAMPLING`](crate::types::Needs::SAMPLING).
    pub fn sampling(self, sampling: Sampling) -> Self {
        Self { sampling: Some(sampling), ..self }
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
        Self::of(Action::Train(Batch { picks: picks.into_iter().collect(), hold: Vec::new(), update: None }))
    }

    fn of(action: Action) -> Self {
        Self {
            action,
            skip: Vec::new(),
            defer: Vec::new(),
            evict: Vec::new(),
            state: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// Keep the rollouts of these prompts buffered for the next step, all that the plan does not pick.
    ///
    /// # Panics
    /// If the plan samples: only one that trains discards anything.
    pub fn hold(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        let all = |prompt| Hold { prompt, rollouts: None };
        self.batch("hold").hold.extend(prompts.into_iter().map(all));
        self
    }

    /// Keep some rollouts buffered for the next step, by their positions in the groups of their prompts. With
    /// [`Needs::REPLAY`](crate::types::Needs::REPLAY) also those that the plan picks.
    ///
    /// # Panics
    /// If the plan samples: only one that trains discards anything.
    pub fn hold_some(mut self, rollouts: impl IntoIterator<Item = (PromptId, Vec<u32>)>) -> Self {
        let some = |(prompt, positions)| Hold { prompt, rollouts: Some(positions) };
        self.batch("hold_some").hold.extend(rollouts.into_iter().map(some));
        self
    }

    /// Update the model in this way. The policy has [`Needs::UPDATING`](crate::types::Needs::UPDATING).
    ///
    /// # Panics
    /// If the plan samples: only one that trains makes an update.
    pub fn update(mut self, update: Update) -> Self {
        self.batch("update").update = Some(update);
        self
    }

    fn batch(&mut self, what: &str) -> &mut Batch {
        match &mut self.action {
            Action::Train(batch) => batch,
            Action::Sample(_) => panic!("`{what}` on a plan that samples; only one that trains has a batch"),
        }
    }

    /// Pass over these prompts of the pool until the next epoch.
    pub fn skip(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        self.skip.extend(prompts);
        self
    }

    /// Put these prompts of the pool back: they come on offer again in this epoch, after all others of it.
    pub fn defer(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        self.defer.extend(prompts);
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

/// A hold of all that a plan does not pick is as good as its prompt: `batch.hold == [7, 9]`.
impl PartialEq<PromptId> for Hold {
    fn eq(&self, prompt: &PromptId) -> bool {
        self.prompt == *prompt && self.rollouts.is_none()
    }
}
