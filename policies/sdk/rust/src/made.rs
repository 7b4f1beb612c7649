//! Made views, groups and pasts, for the tests of policies.

use crate::types::{Budget, Group, Past, Prompt, PromptId, View};

/// A view that opens the first step: these prompts on offer, nothing on hand, no limit.
pub fn view(pool: impl IntoIterator<Item = PromptId>) -> View {
    View {
        step: 0,
        round: 0,
        seed: 1,
        budget: Budget {
            rounds: u32::MAX,
            step_rollouts: u32::MAX,
            run_rollouts: u32::MAX,
            run_tokens: u64::MAX,
        },
        pool: pool.into_iter().map(prompt).collect(),
        groups: Vec::new(),
    }
}

/// A prompt never visited before, of the first epoch.
pub fn prompt(id: PromptId) -> Prompt {
    Prompt { id, epoch: 0, tokens: 10, past: None }
}

/// A fresh group whose rewards are its marks: 1 for a correct rollout, 0 for another.
pub fn group(prompt: PromptId, marks: &[u8]) -> Group {
    let rewards: Vec<f32> = marks.iter().map(|m| f32::from(*m)).collect();
    Group { correct: marks.iter().map(|m| *m == 1).collect(), ..rewarded(prompt, &rewards) }
}

/// A fresh group of these rewards; a rollout is correct from 1 on.
pub fn rewarded(prompt: PromptId, rewards: &[f32]) -> Group {
    let n = rewards.len();
    Group {
        prompt,
        rewards: rewards.to_vec(),
        correct: rewards.iter().map(|r| *r >= 1.0).collect(),
        tokens: vec![10; n],
        ages: vec![0; n],
        truncated: vec![false; n],
        signals: Vec::new(),
    }
}

/// The only visit of a prompt: so many of `rollouts` correct, rewards as [`group`] makes them.
pub fn past(correct: u32, rollouts: u32) -> Past {
    let p = correct as f32 / rollouts as f32;
    Past {
        step: 0,
        visits: 1,
        rollouts,
        correct,
        mean: p,
        deviation: (p * (1.0 - p)).sqrt(),
        tokens: 10.0,
        streak: u32::from(correct == 0 || correct == rollouts),
        total_rollouts: rollouts,
        total_correct: correct,
    }
}
