//! Rollouts as a trainer reports them, and their checks.

use allot_allocation::{GrantLine, Outcome, PromptId};
use serde::Deserialize;

use crate::exception::{Exception, Result};

/// A sampled rollout, as a trainer reports it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    reward: Option<f32>,
    correct: bool,
    tokens: u32,
    truncated: bool,
    signals: Vec<f32>,
}

impl Told {
    /// Combines the grant with the reported rollouts. `signals` is the number of signals of the policy,
    /// `longest` the longest answer, in tokens.
    pub fn outcomes(
        told: Vec<Self>,
        granted: &[GrantLine],
        signals: usize,
        longest: u32,
    ) -> Result<Vec<Outcome>> {
        let positions: Vec<(PromptId, u32, u32)> = granted
            .iter()
            .flat_map(|line| (0..line.count).map(|i| (line.prompt, line.first + i, line.longest(longest))))
            .collect();
        if told.len() != positions.len() {
            let (n, granted) = (told.len(), positions.len());
            let what = format!("{n} rollouts were handed in, and {granted} were granted");
            return Err(Exception::new(what)
                .hint("give one for each, draw by draw; a reward of None is one that could not be scored"));
        }
        for ((prompt, _, longest), one) in positions.iter().zip(&told) {
            if one.tokens > *longest {
                let tokens = one.tokens;
                let what = format!(
                    "a rollout of prompt `{prompt}` has {tokens} tokens, and {longest} is the longest"
                );
                return Err(Exception::new(what));
            }
            if one.signals.len() != signals {
                let n = one.signals.len();
                let what =
                    format!("a rollout of prompt `{prompt}` has {n} signals, and the policy wants {signals}");
                return Err(Exception::new(what));
            }
        }
        Ok(positions
            .iter()
            .zip(told)
            .map(|((prompt, position, _), one)| Outcome {
                turns: Vec::new(),
                stopped: None,
                start: None,
                prompt: *prompt,
                position: *position,
                // Rewards and signals that are not finite never reach a policy or the record.
                reward: one.reward.filter(|r| r.is_finite() && one.signals.iter().all(|x| x.is_finite())),
                correct: one.correct,
                tokens: one.tokens,
                truncated: one.truncated,
                signals: one.signals,
                sampling: None,
            })
            .collect())
    }
}
