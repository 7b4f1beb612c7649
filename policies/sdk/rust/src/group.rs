//! What policies ask of groups, past visits, views and budgets.

use crate::types::{Budget, Group, Past, Prompt, PromptId, View};

impl Group {
    /// Buffered rollouts.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether there are none. The host never shows such a group.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// How many rollouts are correct.
    pub fn solved(&self) -> usize {
        self.correct.iter().filter(|c| **c).count()
    }

    /// Share of correct rollouts.
    pub fn pass_rate(&self) -> f64 {
        self.solved() as f64 / self.len() as f64
    }

    /// Whether all rewards are one and the same: nothing to learn here. `max == min`, never
    /// `std > 0`, whose rounding error keeps groups of a constant such as 0.1.
    pub fn flat(&self) -> bool {
        self.rewards.iter().all(|r| *r == self.rewards[0])
    }

    /// Mean reward.
    pub fn mean(&self) -> f64 {
        self.rewards.iter().map(|r| f64::from(*r)).sum::<f64>() / self.len() as f64
    }

    /// The age of the oldest rollout, in model updates.
    pub fn age(&self) -> u32 {
        self.ages.iter().copied().max().unwrap_or(0)
    }
}

impl Past {
    /// Standard deviation of the rewards as contract 0.1 had it: of the population, divided by n.
    pub fn deviation(&self) -> f32 {
        let n = f64::from(self.rollouts.max(1));
        (f64::from(self.std) * ((n - 1.0) / n).sqrt()) as f32
    }
}

impl View {
    /// The buffered rollouts of a prompt. Looks through all groups.
    pub fn group(&self, prompt: PromptId) -> Option<&Group> {
        self.groups.iter().find(|g| g.prompt == prompt)
    }

    /// The first `n` prompts of the pool, or all that are there.
    pub fn offer(&self, n: u32) -> impl Iterator<Item = &Prompt> {
        self.pool.iter().take(n as usize)
    }

    /// Whether there are prompts on offer and a budget to sample them with.
    pub fn can_sample(&self) -> bool {
        self.budget.open() && !self.pool.is_empty()
    }
}

impl Budget {
    /// Whether the host would serve another round of sampling.
    pub fn open(&self) -> bool {
        self.rounds > 0 && self.step_rollouts > 0 && self.run_rollouts > 0 && self.run_tokens > 0
    }
}

#[cfg(test)]
mod tests {
    use crate::made;

    #[test]
    fn deviations_are_of_the_sample_and_as_0_1_had_them_of_the_population() {
        let past = made::past(2, 4);
        assert!((past.std - (1.0f32 / 3.0).sqrt()).abs() < 1e-6, "as `statistics.stdev([1, 1, 0, 0])`");
        assert!((past.deviation() - 0.5).abs() < 1e-6, "as `statistics.pstdev([1, 1, 0, 0])`");
        assert_eq!((made::past(1, 1).std, made::past(1, 1).deviation()), (0.0, 0.0));
    }
}
